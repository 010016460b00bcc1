select count(*)
from events
where session ~ '7[0-5]+3$';
