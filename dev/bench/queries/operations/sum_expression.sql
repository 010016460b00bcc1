select sum(price * (1 + quantity)), avg(score * 2 + quantity)
from events;
