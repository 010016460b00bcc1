select count(*)
from events
where extract(dow from day) in (0, 6) and extract(hour from happened) < 6;
