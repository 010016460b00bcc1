select max(s)
from (select sum(price) over (order by id) s from events) x;
