select max(array_length(a, 1))
from (select user_id, array_agg(product order by id) a from events group by user_id) x;
