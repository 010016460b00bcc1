-- ClickBench query 8
select "RegionID", count(distinct "UserID") as u
from hits
group by "RegionID"
order by u desc
limit 10;
