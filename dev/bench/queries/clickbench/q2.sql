-- ClickBench query 2
select sum("AdvEngineID"), count(*), avg("ResolutionWidth")
from hits;
