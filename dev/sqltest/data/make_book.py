"""Writes book.xlsx: an empty sheet, a table below a title, and two small ones, with openpyxl.

    python dev/sqltest/data/make_book.py
"""

import datetime as dt
import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "files"))

from books import book

SALES = [
    ["Sales by day"], [], ["day", "at", "n", "price", "who", "ok"],
    [dt.date(2024, 2, 29), dt.time(12, 30), 1, 2.5, "a", True],
    [dt.date(2024, 3, 1), None, 2, 3, "00501", False],
    [None, dt.time(0), None, -0.25, None, None],
    [],
    [dt.date(1900, 3, 1), dt.time(23, 59, 59), 4, 4, "Zürich", True],
]
BAD = [["a", "b"], [1, "x"], [2, "#N/A"]]
WIDE = [["k", "v"], [1, "x"], [2.5, True]]

if __name__ == "__main__":
    (HERE / "book.xlsx").write_bytes(book(("notes", []), ("Sales", SALES), ("Bad", BAD), ("Wide", WIDE)))
