"""Workbooks of Excel, by openpyxl: every kind of cell, and tables at every place of a sheet."""

import datetime as dt
import io

import openpyxl
import pyarrow as pa
from openpyxl.utils.datetime import CALENDAR_MAC_1904

from made import table

DAY, MOMENT, CLOCK = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 12, 34, 56), dt.time(12, 34, 56)
ROWS = [["id", "name"], [1, "a"], [2, None], [3, "c"]]
OF_ROWS = table(("id", "name"), [1, 2, 3], ["a", None, "c"])

# Values of one column, and what is read of them.
COLUMNS = {
    "integers": ([1, -2, None, 2**53], [1, -2, None, 2**53]),
    "floats": ([1.5, None, 0.1, 1e300, -2.5e-9], [1.5, None, 0.1, 1e300, -2.5e-9]),
    "numbers": ([1, 2.5, None], [1.0, 2.5, None]),
    "texts": (["a", None, "Zürich 🦉", 'two\nlines, "quoted" \\'], ["a", None, "Zürich 🦉", 'two\nlines, "quoted" \\']),
    "texts-of-digits": (["00501", "10001"], ["00501", "10001"]),
    "texts-of-numbers": (["1", "2"], ["1", "2"]),
    "booleans": ([True, None, False], [True, None, False]),
    "dates": ([DAY, None, dt.date(1900, 3, 1), dt.date(9999, 12, 31)], [DAY, None, dt.date(1900, 3, 1), dt.date(9999, 12, 31)]),
    "timestamps": ([MOMENT, None, MOMENT.replace(microsecond=250_000)], [MOMENT, None, MOMENT.replace(microsecond=250_000)]),
    "dates-and-timestamps": ([MOMENT, DAY], [MOMENT, dt.datetime(2024, 2, 29)]),
    "times": ([CLOCK, None, dt.time(0)], [CLOCK, None, dt.time(0)]),
    "durations-of-a-day": ([dt.timedelta(hours=1), dt.timedelta(hours=23, minutes=59)], [dt.time(1), dt.time(23, 59)]),
    "durations": ([dt.timedelta(hours=1), dt.timedelta(hours=36, seconds=1)], ["01:00:00", "36:00:01"]),
    "mixed": ([1, "x", 2.5, True, DAY], ["1", "x", "2.5", "true", "2024-02-29"]),
    "formulas": (["=1+1", 7], [None, 7]),
}


def book(*sheets, **settings):
    """The bytes of a workbook; each sheet is a name and its rows, which may begin further down or right."""
    made = openpyxl.Workbook()
    made.remove(made.active)
    made.epoch = settings.get("epoch", made.epoch)
    for name, rows, *at in sheets:
        sheet = made.create_sheet(name)
        top, left = at or (1, 1)
        for i, row in enumerate(rows):
            for j, value in enumerate(row):
                if value is not None:
                    cell = sheet.cell(top + i, left + j, value)
                    if isinstance(value, dt.timedelta):
                        cell.number_format = "[h]:mm:ss"
        if name == "hidden":
            sheet.sheet_state = "hidden"
        if name == "merged":
            sheet.merge_cells("A2:A3")
    made.properties.created = made.properties.modified = dt.datetime(2024, 1, 1)
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def books(folder):
    for name, (values, read) in COLUMNS.items():
        rows = [["n", "v"], *([i, v] for i, v in enumerate(values))]
        folder.add(f"{name}.xlsx", book(("Sheet1", rows)), table("nv", list(range(len(values))), read))
    plain = book(("Sheet1", ROWS))
    folder.add("macros.xlsm", plain, OF_ROWS)
    folder.add("inside.xlsx", book(("Sheet1", ROWS, 5, 3)), OF_ROWS)
    folder.add("title.xlsx", book(("Sheet1", [["Sales of the year"], ["by day", None], [], *ROWS])), OF_ROWS)
    three = [[*row, i] for i, row in enumerate(ROWS)]
    three[0][2] = "third"
    folder.add("title-beside.xlsx", book(("Sheet1", [["Sales of the year"], *three])), table(("id", "name", "third"), [1, 2, 3], ["a", None, "c"], [1, 2, 3]))
    folder.add("no-header.xlsx", book(("Sheet1", ROWS[1:])), table("AB", [1, 2, 3], ["a", None, "c"]))
    folder.add("header-of-texts.xlsx", book(("Sheet1", [["a", "b"], ["x", "y"], ["z", "y"]])), table("ab", ["x", "z"], ["y", "y"]))
    folder.add("years.xlsx", book(("Sheet1", [["land", 2020, 2021], ["x", 1.5, 2], ["y", 3, 4]])), table(("land", "2020", "2021"), ["x", "y"], [1.5, 3.0], [2, 4]))
    folder.add("same-names.xlsx", book(("Sheet1", [["a", "A", None], [1, 2, 3]])), table(("a", "A_1", "C"), [1], [2], [3]))
    folder.add("late-column.xlsx", book(("Sheet1", [["a"], *([i] for i in range(100)), [100, "late"]])), table("aB", list(range(101)), [None] * 100 + ["late"]))
    folder.add("gap.xlsx", book(("Sheet1", [*ROWS, [], [4, "d"]])), table(("id", "name"), [1, 2, 3, 4], ["a", None, "c", "d"]))
    folder.add("second.xlsx", book(("empty", []), ("data", ROWS), ("more", [["x"], [1]])), OF_ROWS)
    folder.add("hidden.xlsx", book(("hidden", [["x"], [1]]), ("data", ROWS)), OF_ROWS)
    folder.add("merged.xlsx", book(("merged", [["g", "v"], ["a", 1], [None, 2], ["b", 3]])), table("gv", ["a", None, "b"], [1, 2, 3]))
    folder.add("of-1904.xlsx", book(("Sheet1", [["d"], [DAY], [dt.date(1999, 12, 31)]]), epoch=CALENDAR_MAC_1904), table("d", [DAY, dt.date(1999, 12, 31)]))
    names = [f"c{i}" for i in range(300)]
    folder.add("wide.xlsx", book(("Sheet1", [names, list(range(300))])), pa.table({name: [i] for i, name in enumerate(names)}))
    many = range(30_000)
    folder.add("long.xlsx", book(("Sheet1", [["i", "t"], *([i, f"t{i % 7}"] for i in many)])), table("it", list(many), [f"t{i % 7}" for i in many]))
    folder.add("error.xlsx", book(("Sheet1", [["a", "b"], [1, 2], [3, "#DIV/0!"]])), "cell B3: #DIV/0!")
    folder.add("header-alone.xlsx", book(("Sheet1", [["a", "b"]])), "no row below its header")
    folder.add("empty.xlsx", book(("Sheet1", [])), "is empty")
    folder.add("cut-short.xlsx", plain[: len(plain) // 2], "damaged or cut short")
    folder.add("text.xlsx", b"a,b\n1,2\n", "no workbook of Excel")
    folder.add("old.xls", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "save it as .xlsx")
    folder.add("nothing.xlsx", b"", "is empty")
