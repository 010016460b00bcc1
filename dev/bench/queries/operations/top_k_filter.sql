select id, happened, score
from events
where paid and region = 'region 3'
order by score desc, id limit 100;
