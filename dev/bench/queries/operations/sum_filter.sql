select count(*) filter (where paid), sum(price) filter (where quantity > 50), avg(score) filter (where not paid)
from events;
