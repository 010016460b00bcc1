select max(price / total)
from (select price, sum(price) over (partition by product) total from events) x
where total > 0;
