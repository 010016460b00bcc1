select count(distinct session)
from events;
