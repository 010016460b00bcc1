-- ClickBench query 19
select "UserID"
from hits
where "UserID" = 435090932899640449;
