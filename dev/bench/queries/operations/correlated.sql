select count(*)
from events e
where price > (select 1.9 * avg(price) from events i where i.user_id = e.user_id);
