-- ClickBench query 16
select "UserID", "SearchPhrase", count(*) as c
from hits
group by "UserID", "SearchPhrase"
order by c desc
limit 10;
