select id
from events
order by price, id limit 5 offset 4000000;
