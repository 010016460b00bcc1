select id, session
from events
order by session, id limit 10;
