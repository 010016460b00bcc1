-- ClickBench query 1
select count(*)
from hits
where "AdvEngineID" <> 0;
