select count(*)
from (select product from events union select product from prices) x;
