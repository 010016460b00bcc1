select count(distinct upper(region) || '/' || length(session))
from events;
