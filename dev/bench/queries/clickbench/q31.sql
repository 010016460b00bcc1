-- ClickBench query 31
select "WatchID", "ClientIP", count(*) as c, sum("IsRefresh"), avg("ResolutionWidth")
from hits
where "SearchPhrase" <> ''
group by "WatchID", "ClientIP"
order by c desc
limit 10;
