select sum(r)
from (select row_number() over (order by user_id) r, quantity from events) x
where r % 1000 = 0;
