-- ClickBench query 4
select count(distinct "UserID")
from hits;
