select count(*), sum(price)
from (select price, row_number() over (partition by user_id order by price desc, id) r from events) x
where r <= 3;
