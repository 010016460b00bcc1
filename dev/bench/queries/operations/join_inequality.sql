select count(*)
from users u join prices p on p.list_price > 990 and u.joined < p.valid_from
where u.closed;
