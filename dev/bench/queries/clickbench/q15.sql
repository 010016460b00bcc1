-- ClickBench query 15
select "UserID", count(*) as c
from hits
group by "UserID"
order by c desc
limit 10;
