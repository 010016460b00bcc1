select count(*)
from (select price, lag(price) over (partition by region order by id) p from events) x
where price > p;
