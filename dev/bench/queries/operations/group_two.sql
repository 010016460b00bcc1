select count(*), max(n)
from (select user_id, region, count(*) n, min(happened) from events group by user_id, region) x;
