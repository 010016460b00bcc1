select count(*)
from (select user_id, max(happened) from events where paid group by user_id) x;
