select sum(coalesce(quantity, 0)), count(nullif(quantity, 50)), sum(greatest(quantity, 10))
from events;
