select sum(r)
from (select row_number() over (order by product, id) r, quantity from events) x
where quantity = 7;
