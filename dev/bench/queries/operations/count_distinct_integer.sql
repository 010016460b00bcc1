select count(distinct user_id)
from events;
