-- ClickBench query 13
select "SearchPhrase", count(distinct "UserID") as u
from hits
where "SearchPhrase" <> ''
group by "SearchPhrase"
order by u desc
limit 10;
