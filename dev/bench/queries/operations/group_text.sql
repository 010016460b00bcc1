select count(*), max(n)
from (select session, count(*) n from events group by session) x;
