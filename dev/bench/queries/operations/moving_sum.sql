select max(s)
from (select sum(quantity) over (order by id rows 100 preceding) s from events) x;
