-- ClickBench query 36
select "URL", count(*) as pageviews
from hits
where "CounterID" = 62
  and "EventDate" >= '2013-07-01'
  and "EventDate" <= '2013-07-31'
  and "DontCountHits" = 0
  and "IsRefresh" = 0
  and "URL" <> ''
group by "URL"
order by pageviews desc
limit 10;
