-- Which airline is latest, and over how many flights?
select a.name, count(*) as flights, round(avg(f.arr_delay), 2) as mean_delay
from flights f join airlines a on f.carrier = a.carrier
where f.arr_delay is not null
group by a.name
order by mean_delay desc, a.name;

-- The three longest departure delays of each airport, and the plane that had them.
select origin, place, dep_delay, tailnum, manufacturer, built
from (
  select f.origin, f.dep_delay, f.tailnum, p.manufacturer, p.year as built,
         row_number() over (partition by f.origin order by f.dep_delay desc, f.tailnum) as place
  from flights f left join planes p on f.tailnum = p.tailnum
  where f.dep_delay is not null
) ranked
where place <= 3
order by origin, place;

-- How do rain and wind at departure go with delay?
select w.precip > 0 as rain, case when w.wind_speed >= 20 then 'strong' else 'light' end as wind,
       count(*) as flights, round(avg(f.dep_delay), 2) as mean_delay
from flights f join weather w on f.origin = w.origin and f.time_hour = w.time_hour
where f.dep_delay is not null and w.wind_speed is not null
group by 1, 2
order by 1, 2;

-- Flights per month and the running total of the year, per airport.
select origin, month, flights, sum(flights) over (partition by origin order by month) as so_far
from (select origin, month, count(*) as flights from flights group by origin, month) per_month
order by origin, month;

-- Destinations that are not in the list of airports, and how they compare with the day before.
with daily as (
  select f.dest, f.month, f.day, count(*) as flights
  from flights f left join airports a on f.dest = a.faa
  where a.faa is null
  group by f.dest, f.month, f.day
)
select dest, month, day, flights,
       flights - lag(flights) over (partition by dest order by month, day) as change
from daily
where month = 1 and day <= 7
order by dest, month, day;
