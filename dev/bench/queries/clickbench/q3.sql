-- ClickBench query 3
select avg("UserID")
from hits;
