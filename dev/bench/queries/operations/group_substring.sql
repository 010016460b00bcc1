select substring(session, 9, 2) s, count(*)
from events
group by 1
order by 1 limit 20;
