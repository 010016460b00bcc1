-- ClickBench query 0
select count(*)
from hits;
