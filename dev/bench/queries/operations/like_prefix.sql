select count(*)
from events
where session like 'session 12%';
