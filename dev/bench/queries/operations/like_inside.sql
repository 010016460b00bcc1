select count(*)
from events
where session like '%99%';
