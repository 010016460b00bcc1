-- ClickBench query 37
select "Title", count(*) as pageviews
from hits
where "CounterID" = 62
  and "EventDate" >= '2013-07-01'
  and "EventDate" <= '2013-07-31'
  and "DontCountHits" = 0
  and "IsRefresh" = 0
  and "Title" <> ''
group by "Title"
order by pageviews desc
limit 10;
