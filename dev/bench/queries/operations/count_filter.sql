select count(*)
from events
where quantity between 20 and 40 and price < 5000;
