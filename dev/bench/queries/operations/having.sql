select user_id, sum(quantity) q
from events
group by user_id
having count(*) > 100
order by q desc, user_id limit 10;
