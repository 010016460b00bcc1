select region, stddev(score), variance(quantity), corr(score, quantity)
from events
group by region
order by region;
