select region, paid, count(*), sum(price)
from events
group by rollup (region, paid)
order by 1, 2;
