-- ClickBench query 26
select "SearchPhrase"
from hits
where "SearchPhrase" <> ''
order by "EventTime", "SearchPhrase"
limit 10;
