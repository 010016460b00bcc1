-- ClickBench query 32
select "WatchID", "ClientIP", count(*) as c, sum("IsRefresh"), avg("ResolutionWidth")
from hits
group by "WatchID", "ClientIP"
order by c desc
limit 10;
