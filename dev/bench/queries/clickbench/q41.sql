-- ClickBench query 41
select "WindowClientWidth", "WindowClientHeight", count(*) as pageviews
from hits
where "CounterID" = 62
  and "EventDate" >= '2013-07-01'
  and "EventDate" <= '2013-07-31'
  and "IsRefresh" = 0
  and "DontCountHits" = 0
  and "URLHash" = 2868770270353813622
group by "WindowClientWidth", "WindowClientHeight"
order by pageviews desc
limit 10 offset 10000;
