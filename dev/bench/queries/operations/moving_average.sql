select max(s)
from (select avg(score) over (partition by region order by id rows between 10 preceding and 10 following) s from events) x;
