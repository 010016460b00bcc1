select region, percentile_cont(0.5) within group (order by score)
from events
group by region
order by region;
