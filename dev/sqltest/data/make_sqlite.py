"""Writes people.sqlite, a file of SQLite for files/attach: `python3 make_sqlite.py` beside it."""

import pathlib
import sqlite3

PATH = pathlib.Path(__file__).parent / "people.sqlite"

PATH.unlink(missing_ok=True)
with sqlite3.connect(PATH) as database:
    database.executescript("""
        PRAGMA page_size = 512;
        VACUUM;
        CREATE TABLE people (id INTEGER PRIMARY KEY, "Name" VARCHAR(20), height REAL, born DATE, seen DATETIME,
            rises TIME, is_here BOOLEAN, picture BLOB, anything);
        INSERT INTO people VALUES
            (1, 'Ann', 1.75, '1990-02-28', '2024-01-31 10:30:00.25', '06:30', 1, x'00ff', 7),
            (2, 'Bob', 2, NULL, '2024-02-01', NULL, 0, NULL, 8),
            (3, NULL, NULL, '2000-02-29', NULL, '23:59:59', NULL, x'', NULL);
        CREATE TABLE "Odd names" ("a b" INTEGER, "select" TEXT);
        INSERT INTO "Odd names" VALUES (1, 'x');
        CREATE TABLE wrong (id INTEGER, day DATE);
        INSERT INTO wrong VALUES (1, '2024-01-01'), (2, '01/02/2024'), ('three', '2024-01-03');
        CREATE TABLE empty (a INTEGER, b);
        CREATE VIEW names AS SELECT "Name", length("Name") AS letters FROM people;
    """)
