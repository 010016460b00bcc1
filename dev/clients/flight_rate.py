"""How fast the rows of a query arrive over Arrow Flight SQL.

    flight_rate.py HOST:PORT SQL [--user NAME --password PASSWORD] [--runs N]

Prints a line per run: rows, seconds, rows per second, bytes per second of Arrow data.
"""

import argparse
import time

import adbc_driver_flightsql.dbapi as dbapi


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("address", help="host:port")
    parser.add_argument("sql")
    parser.add_argument("--user")
    parser.add_argument("--password", default="")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    options = {}
    if args.user is not None:
        options = {"username": args.user, "password": args.password}
    with dbapi.connect(f"grpc://{args.address}", db_kwargs=options, autocommit=True) as c:
        for _ in range(args.runs):
            rows = size = 0
            begun = time.perf_counter()
            with c.cursor() as cursor:
                cursor.execute(args.sql)
                # Batches are counted and dropped: what is measured is how they arrive.
                for batch in cursor.fetch_record_batch():
                    rows += batch.num_rows
                    size += batch.nbytes
            seconds = time.perf_counter() - begun
            print(
                f"rows {rows} seconds {seconds:.3f} "
                f"rows_per_s {rows / seconds:.0f} bytes_per_s {size / seconds:.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
