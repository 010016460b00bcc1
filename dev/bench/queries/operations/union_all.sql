select k, count(*), sum(v)
from (select region k, price v from events union all select region, list_price from prices join (select distinct region from events) r on true where product < 100) x
group by k
order by k;
