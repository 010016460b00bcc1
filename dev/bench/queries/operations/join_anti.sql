select count(*)
from users
where not exists (select 1 from events where user_id = users.id and quantity > 97);
