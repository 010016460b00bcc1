-- ClickBench query 23
select *
from hits
where "URL" like '%google%'
order by "EventTime"
limit 10;
