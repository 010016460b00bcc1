select count(*), count(country)
from events left join users on users.id = user_id and closed;
