select count(*)
from (select rank() over (partition by region order by price desc) r from events) x
where r <= 100;
