select country, count(*), sum(price)
from events join users on users.id = user_id
group by country
order by country;
