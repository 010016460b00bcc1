select count(*)
from events
where user_id in (select id from users where closed);
