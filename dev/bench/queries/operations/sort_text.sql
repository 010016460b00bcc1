select id
from events
order by session, id limit 5 offset 7000000;
