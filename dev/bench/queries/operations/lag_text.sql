select count(*)
from (select id, lag(id) over (partition by session order by id) p from events) x
where id - p < 1000000;
