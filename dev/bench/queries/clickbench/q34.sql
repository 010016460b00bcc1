-- ClickBench query 34
select 1, "URL", count(*) as c
from hits
group by 1, "URL"
order by c desc
limit 10;
