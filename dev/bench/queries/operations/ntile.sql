select n, count(*)
from (select ntile(10) over (order by score, id) n from events) x
group by n
order by n;
