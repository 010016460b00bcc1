select count(*), sum(price)
from events
where product in (1,5,77,102,340,341,999,1234,2000,2001,3333,4040,5050,6006,7007,8008,9009,10000);
