-- ClickBench query 18
select "UserID", extract(minute from "EventTime") as m, "SearchPhrase", count(*) as c
from hits
group by "UserID", m, "SearchPhrase"
order by c desc
limit 10;
