select case when price < 1000 then 'low' when price < 5000 then 'middle' else 'high' end c, count(*), avg(quantity)
from events
group by 1
order by 1;
