select length(string_agg(session, ',' order by id))
from events
where id <= 200000;
