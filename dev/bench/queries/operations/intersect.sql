select count(*)
from (select session from events where paid intersect select session from events where not paid) x;
