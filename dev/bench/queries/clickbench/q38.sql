-- ClickBench query 38
select "URL", count(*) as pageviews
from hits
where "CounterID" = 62
  and "EventDate" >= '2013-07-01'
  and "EventDate" <= '2013-07-31'
  and "IsRefresh" = 0
  and "IsLink" <> 0
  and "IsDownload" = 0
group by "URL"
order by pageviews desc
limit 10 offset 1000;
