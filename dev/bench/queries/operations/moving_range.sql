select max(c)
from (select count(*) over (order by happened range interval '1 hour' preceding) c from events) x;
