-- ClickBench query 39
select
  "TraficSourceID",
  "SearchEngineID",
  "AdvEngineID",
  case when ("SearchEngineID" = 0 and "AdvEngineID" = 0) then "Referer" else '' end as src,
  "URL" as dst,
  count(*) as pageviews
from hits
where "CounterID" = 62
  and "EventDate" >= '2013-07-01'
  and "EventDate" <= '2013-07-31'
  and "IsRefresh" = 0
group by "TraficSourceID", "SearchEngineID", "AdvEngineID", src, dst
order by pageviews desc
limit 10 offset 1000;
