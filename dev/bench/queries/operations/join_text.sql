select count(*), sum(a.price)
from events a join (select session, max(price) m from events group by session) b on a.session = b.session and a.price = b.m;
