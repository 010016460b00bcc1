select extract(hour from happened) h, count(*)
from events
group by 1
order by 1;
