select date_trunc('month', happened) m, count(*), sum(quantity)
from events
group by 1
order by 1;
