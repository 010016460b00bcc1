select count(*), sum(price)
from (select distinct on (user_id) user_id, price from events order by user_id, happened desc, id desc) x;
