-- ClickBench query 35
select "ClientIP", "ClientIP" - 1, "ClientIP" - 2, "ClientIP" - 3, count(*) as c
from hits
group by "ClientIP", "ClientIP" - 1, "ClientIP" - 2, "ClientIP" - 3
order by c desc
limit 10;
