select count(*)
from (select distinct product, region from events) x;
