-- ClickBench query 28
select
  regexp_replace("Referer", '^https?://(?:www\.)?([^/]+)/.*$', '\1') as k,
  avg(length("Referer")) as l,
  count(*) as c,
  min("Referer")
from hits
where "Referer" <> ''
group by k
having count(*) > 100000
order by l desc
limit 25;
