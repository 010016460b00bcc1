select sum(case when paid then price else 0 end), sum(case when quantity > 50 then 1 else 0 end)
from events;
