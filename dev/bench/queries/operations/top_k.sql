select id, price
from events
order by price desc, id limit 10;
