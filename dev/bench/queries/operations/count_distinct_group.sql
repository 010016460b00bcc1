select region, count(distinct user_id)
from events
group by region
order by region;
