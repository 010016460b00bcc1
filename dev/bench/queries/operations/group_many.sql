select count(*), max(n), sum(s)
from (select user_id, count(*) n, sum(price) s from events group by user_id) x;
