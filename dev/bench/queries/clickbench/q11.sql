-- ClickBench query 11
select "MobilePhone", "MobilePhoneModel", count(distinct "UserID") as u
from hits
where "MobilePhoneModel" <> ''
group by "MobilePhone", "MobilePhoneModel"
order by u desc
limit 10;
