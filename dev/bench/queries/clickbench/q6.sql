-- ClickBench query 6
select min("EventDate"), max("EventDate")
from hits;
