-- ClickBench query 20
select count(*)
from hits
where "URL" like '%google%';
