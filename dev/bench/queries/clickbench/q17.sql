-- ClickBench query 17
select "UserID", "SearchPhrase", count(*)
from hits
group by "UserID", "SearchPhrase"
limit 10;
