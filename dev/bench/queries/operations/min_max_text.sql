select min(session), max(session), min(happened), max(day)
from events;
