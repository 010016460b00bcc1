select sum(f), sum(l)
from (select first_value(quantity) over w f, last_value(quantity) over w l from events window w as (partition by user_id order by id rows between unbounded preceding and unbounded following)) x;
