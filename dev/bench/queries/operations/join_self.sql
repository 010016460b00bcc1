select count(*)
from events a join events b on b.id = a.id + 1
where a.user_id < b.user_id;
