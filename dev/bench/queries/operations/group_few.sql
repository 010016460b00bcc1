select region, count(*), sum(price), avg(score)
from events
group by region
order by region;
