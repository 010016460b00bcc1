-- ClickBench query 5
select count(distinct "SearchPhrase")
from hits;
