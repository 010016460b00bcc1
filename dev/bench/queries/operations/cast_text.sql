select sum(length(id::text))
from events;
