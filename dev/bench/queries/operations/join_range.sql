select sum(list_price)
from events e join prices p on p.product = e.product and e.day between p.valid_from and p.valid_to;
