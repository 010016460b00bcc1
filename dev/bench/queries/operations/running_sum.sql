select sum(s)
from (select sum(quantity) over (partition by user_id order by id) s from events) x;
