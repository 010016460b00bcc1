-- Everyday operations: what happened, to whom, and what it should have cost.

create table events (
  id bigint not null,
  happened timestamp not null,
  day date not null,
  user_id integer not null,
  product integer not null,
  region varchar not null,
  session varchar not null,
  quantity integer,
  price numeric(12, 2) not null,
  score double precision not null,
  paid boolean not null
);

create table users (
  id integer not null,
  country varchar not null,
  joined date not null,
  closed boolean not null
);

create table prices (
  product integer not null,
  valid_from date not null,
  valid_to date not null,
  list_price numeric(12, 2) not null
);
