select count(*)
from (select user_id from events where quantity > 10 except select user_id from events where quantity = 50) x;
