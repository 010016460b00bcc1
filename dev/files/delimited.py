"""Delimited files: every dialect, kind of value, header, preamble and shape."""

import datetime
from datetime import date, time

from made import Folder, table

DELIMITERS = {"comma": ",", "semicolon": ";", "tab": "\t", "bar": "|"}
LINE_ENDS = {"lf": "\n", "crlf": "\r\n", "cr": "\r"}
COMPRESSIONS = ("gz", "zst", "bz2", "xz", "zip")


def at(*parts):
    return datetime.datetime(*parts)


def instant(*parts):
    return datetime.datetime(*parts, tzinfo=datetime.UTC)


def written(rows, delimiter=",", quote='"', escape=None, always=False, eol="\n"):
    """Rows of texts and None, as a writer of this dialect has them."""

    def cell(value):
        if value is None:
            return ""
        needs = always or value == "" or any(c in value for c in (delimiter, quote, "\n", "\r"))
        if not needs:
            return value
        if escape:
            value = value.replace(escape, escape * 2).replace(quote, escape + quote)
        else:
            value = value.replace(quote, quote * 2)
        return quote + value + quote

    return "".join(delimiter.join(map(cell, row)) + eol for row in rows)


# What most of the dialects are tried with: whole numbers, text, fractions, dates.
NAMES = ("id", "name", "price", "day")
ROWS = [
    ("1", "Ada", "2.5", "2024-01-31"),
    ("2", "Grace", "10.25", "2024-02-29"),
    ("3", "Barbara", "-0.5", "2023-12-01"),
    ("4", None, "1000.125", "2024-03-15"),
    ("5", "Edsger", "7.0", None),
    ("6", "Donald", "0.0", "1999-12-31"),
]
VALUES = (
    [1, 2, 3, 4, 5, 6],
    ["Ada", "Grace", "Barbara", None, "Edsger", "Donald"],
    [2.5, 10.25, -0.5, 1000.125, 7.0, 0.0],
    [date(2024, 1, 31), date(2024, 2, 29), date(2023, 12, 1), date(2024, 3, 15), None, date(1999, 12, 31)],
)
BASE = table(NAMES, *VALUES)
NAMELESS = table([f"column_{i}" for i in range(1, 5)], *VALUES)


def dialects(folder):
    for d, delimiter in DELIMITERS.items():
        for e, eol in LINE_ENDS.items():
            text = lambda always, names: written([*names, *ROWS], delimiter, always=always, eol=eol)
            folder.add(f"{d}-{e}.csv", text(False, [NAMES]), BASE)
            folder.add(f"{d}-{e}-quoted.csv", text(True, [NAMES]).replace('""' + delimiter, delimiter), BASE)
            folder.add(f"{d}-{e}-no-header.csv", text(False, []), NAMELESS)
        folder.add(f"{d}-no-last-line-end.csv", written([NAMES, *ROWS], delimiter).rstrip("\n"), BASE)
        folder.add(f"{d}-header-alone.csv", delimiter.join(NAMES) + "\n")
        folder.add(f"{d}-one-row.csv", written([NAMES, ROWS[0]], delimiter), table(NAMES, *([v[0]] for v in VALUES)))
    folder.add("tsv.tsv", written([NAMES, *ROWS], "\t"), BASE)
    for suffix in ("txt", "dat", "tab"):
        folder.add(f"named.{suffix}", written([NAMES, *ROWS], "\t"), BASE)


# Fields that are hard on a dialect.
HARD = ['He said "no"', "it's", "a,b;c|d\te", "two\nlines", "back\\slash", "plain", "end"]


def quotes(folder):
    for d, delimiter in DELIMITERS.items():
        for q, quote in (("double", '"'), ("single", "'")):
            for s, escape in (("doubled", None), ("backslash", "\\")):
                for a, always in (("needed", False), ("always", True)):
                    # A backslash in front of a delimiter is no escape without quotes around it.
                    fields = [f for f in HARD if not (escape and "\\" in f and not always)]
                    rows = [(str(i), f, str(i / 2)) for i, f in enumerate(fields, 1)]
                    names = ("id", "text", "half")
                    text = written([names, *rows], delimiter, quote, escape, always)
                    made = table(names, [int(r[0]) for r in rows], fields, [float(r[2]) for r in rows])
                    folder.add(f"quotes-{d}-{q}-{s}-{a}.csv", text, made)
    for e, eol in LINE_ENDS.items():
        rows = [(str(i), f"line one{eol}line {i}{eol}", "x") for i in range(1, 30)]
        folder.add(f"quoted-line-ends-{e}.csv", written([("i", "t", "x"), *rows], eol=eol),
                   table(("i", "t", "x"), range_of(30), [r[1] for r in rows], ["x"] * 29))
    folder.add("quoted-line-ends-many.csv", written([("i", "t"), *((str(i), f"a\n{i},b\n\n") for i in range(1, 5000))]),
               table(("i", "t"), range_of(5000), [f"a\n{i},b\n\n" for i in range(1, 5000)]))
    folder.add("quotes-stray.csv", 'name,born\n"Swing it" magistern,1940\nRed 5" pipe,1941\n"Plain",1942\n',
               table(("name", "born"), ['"Swing it" magistern', 'Red 5" pipe', "Plain"], [1940, 1941, 1942]))
    folder.add("quotes-unclosed.csv", 'a,b\n1,"x"\n2,"never closed\n3,z\n', "quote")
    folder.add("quotes-inch.tsv", 'size\tn\n5"\t1\n7"\t2\n9 1/2"\t3\n', table(("size", "n"), ['5"', '7"', '9 1/2"'], [1, 2, 3]))
    folder.add("quotes-blanks-around.csv", 'a,b,c\n1, "x, y", 2\n3, "z", 4\n', table("abc", [1, 3], ["x, y", "z"], [2, 4]))
    folder.add("quotes-header-only.csv", '"a b","c, d"\n1,2\n3,4\n', table(("a b", "c, d"), [1, 3], [2, 4]))
    folder.add("quotes-single-in-header.csv", "'a'\t'b'\n1\t2\n3\t4\n", table("ab", [1, 3], [2, 4]))
    folder.add("quotes-empty.csv", 'a,b,c\n1,"",x\n2,,y\n3,"z",\n', table("abc", [1, 2, 3], ["", None, "z"], ["x", "y", None]))
    folder.add("quotes-numbers.csv", 'a,b\n"1","2.5"\n"2","3.5"\n', table("ab", [1, 2], [2.5, 3.5]))
    folder.add("quotes-apostrophes.csv", "name,n\nO'Neil,1\nD'Arcy,2\nL'Oréal,3\n", table(("name", "n"), ["O'Neil", "D'Arcy", "L'Oréal"], [1, 2, 3]))
    folder.add("quotes-html.csv", 'id,html\n1,"<a href=""x"">y</a>"\n2,"<b>,</b>"\n', table(("id", "html"), [1, 2], ['<a href="x">y</a>', "<b>,</b>"]))
    folder.add("quotes-json.csv", 'id,doc\n1,"{""a"": [1, 2]}"\n2,"{}"\n', table(("id", "doc"), [1, 2], ['{"a": [1, 2]}', "{}"]))


def range_of(end):
    return list(range(1, end))


ENCODINGS = {"utf-8": "utf-8", "utf-8-bom": "utf-8-sig", "utf-16": "utf-16", "utf-16-be": "utf-16-be", "cp1252": "cp1252"}


def encodings(folder):
    names = ("id", "Größe", "città")
    words = ["Zürich", "Malmö", "São Paulo", "Besançon", "5 € naïve", "plain"]
    rows = [(str(i), w, f"{i}.5") for i, w in enumerate(words, 1)]
    made = table(names, range_of(7), words, [i + 0.5 for i in range(1, 7)])
    for n, encoding in ENCODINGS.items():
        for e in ("lf", "crlf"):
            for d in ("comma", "semicolon"):
                text = written([names, *rows], DELIMITERS[d], eol=LINE_ENDS[e])
                mark = b"\xfe\xff" if n == "utf-16-be" else b""
                folder.add(f"encoding-{n}-{d}-{e}.csv", mark + text.encode(encoding), made)
    folder.add("encoding-latin-1-late.csv", b"a,b\n" + b"1,plain\n" * 5000 + "2,Köln\n".encode("latin-1"),
               table("ab", [1] * 5000 + [2], ["plain"] * 5000 + ["Köln"]))
    folder.add("encoding-wide-letters.csv", "name,n\n東京,1\nМосква,2\n🦉 owl,3\nअ,4\n", table(("name", "n"), ["東京", "Москва", "🦉 owl", "अ"], range_of(5)))
    folder.add("encoding-bom-quoted.csv", b"\xef\xbb\xbf" + b'"a","b"\n1,x\n2,y\n', table("ab", [1, 2], ["x", "y"]))
    folder.add("encoding-bad-utf-8.csv", "a,b\n1,Köln\n".encode() + b"2,\xff\xfe\x80\xc3\n" + "3,Zürich\n".encode(), "UTF-8")
    folder.add("encoding-zero-byte.csv", b"a,b\n1,x\x00y\n2,z\n")


def compressed(folder):
    text = written([NAMES, *ROWS])
    for how in COMPRESSIONS:
        folder.add(f"compressed.csv.{how}", text, BASE)
        folder.add(f"compressed-tabs.tsv.{how}", text.replace(",", "\t"), BASE)
    parts = [folder.put(f"part-{i}.csv.gz", written([NAMES, *ROWS] if i == 0 else ROWS)).read_bytes() for i in range(2)]
    path = folder.root / "members.csv.gz"
    path.write_bytes(b"".join(parts))
    folder.case("compressed-members.csv.gz", path, table(NAMES, *(v + v for v in VALUES)))


UTC = datetime.UTC
# Values of one column as they are written, and what they are. Each is written without NULLs, with them,
# and in quotes.
KINDS = {
    "integers": (["1", "20", "-3", "0"], [1, 20, -3, 0]),
    "integers-extreme": (["9223372036854775807", "-9223372036854775808", "0"], [2**63 - 1, -(2**63), 0]),
    "integers-large": (["9223372036854775808", "12345678901234567890123", "1"], ["9223372036854775808", "12345678901234567890123", "1"]),
    "leading-zeros": (["00501", "10001", "02134"], ["00501", "10001", "02134"]),
    "phones": (["+4930123", "+33140", "+1555"], ["+4930123", "+33140", "+1555"]),
    "floats": (["1.5", "-2.25", "0.125", "3.0"], [1.5, -2.25, 0.125, 3.0]),
    "floats-exponents": (["1e10", "2.5E-3", "-1e300", "4.9e-324"], [1e10, 2.5e-3, -1e300, 5e-324]),
    "floats-without-zero": ([".5", "1.", "-.25"], [0.5, 1.0, -0.25]),
    "floats-special": (["NaN", "inf", "-inf", "1.5"], [float("nan"), float("inf"), float("-inf"), 1.5]),
    "floats-infinite": (["1.5", "Inf", "-Inf", "NaN", "Infinity"], [1.5, float("inf"), float("-inf"), float("nan"), float("inf")]),
    "floats-long": (["0.1000000000000000055511151231257827", "3.14159265358979323846", "2.5"], [0.1, 3.141592653589793, 2.5]),
    "integers-then-float": (["1", "2", "2.5"], [1.0, 2.0, 2.5]),
    "integers-then-text": (["1", "2", "x"], ["1", "2", "x"]),
    "booleans": (["true", "false", "true"], [True, False, True]),
    "booleans-capital": (["True", "False", "TRUE"], [True, False, True]),
    "yes-no": (["yes", "no", "yes"], [True, False, True]),
    "t-f": (["t", "f", "t"], ["t", "f", "t"]),
    "dates": (["2024-01-31", "1999-12-01", "0001-01-01", "9999-12-31"], [date(2024, 1, 31), date(1999, 12, 1), date(1, 1, 1), date(9999, 12, 31)]),
    "dates-day-first": (["31/01/2024", "01/02/2024", "15/03/2023"], [date(2024, 1, 31), date(2024, 2, 1), date(2023, 3, 15)]),
    "dates-month-first": (["01/31/2024", "02/01/2024", "03/15/2023"], [date(2024, 1, 31), date(2024, 2, 1), date(2023, 3, 15)]),
    "dates-slashes": (["2024/01/31", "2012/01/01", "2023/03/15"], [date(2024, 1, 31), date(2012, 1, 1), date(2023, 3, 15)]),
    "dates-dots": (["31.01.2024", "01.02.2024", "15.03.2023"], [date(2024, 1, 31), date(2024, 2, 1), date(2023, 3, 15)]),
    "dates-dashes": (["31-01-2024", "01-02-2024", "15-03-2023"], [date(2024, 1, 31), date(2024, 2, 1), date(2023, 3, 15)]),
    "dates-no-zeros": (["1/31/2024", "2/1/2024", "3/15/2023"], [date(2024, 1, 31), date(2024, 2, 1), date(2023, 3, 15)]),
    "dates-ambiguous": (["01/02/2024", "03/04/2024", "05/06/2023"], ["01/02/2024", "03/04/2024", "05/06/2023"]),
    "dates-no-such-day": (["2024-02-30", "2024-01-01", "2024-01-02"], ["2024-02-30", "2024-01-01", "2024-01-02"]),
    "dates-then-text": (["2024-01-31", "soon", "2024-02-01"], ["2024-01-31", "soon", "2024-02-01"]),
    "numbers-like-dates": (["20240131", "20240201", "20231231"], [20240131, 20240201, 20231231]),
    "years": (["2020", "2021", "1999"], [2020, 2021, 1999]),
    "timestamps": (["2024-01-31 10:00:00", "1969-07-20 20:17:40"], [at(2024, 1, 31, 10), at(1969, 7, 20, 20, 17, 40)]),
    "timestamps-t": (["2024-01-31T10:00:00", "1969-07-20T20:17:40"], [at(2024, 1, 31, 10), at(1969, 7, 20, 20, 17, 40)]),
    "timestamps-fractions": (["2024-01-31 10:00:00.5", "1969-07-20 20:17:40.123456"], [at(2024, 1, 31, 10, 0, 0, 500000), at(1969, 7, 20, 20, 17, 40, 123456)]),
    "timestamps-minutes": (["2024-01-31 10:00", "1969-07-20 20:17"], [at(2024, 1, 31, 10), at(1969, 7, 20, 20, 17)]),
    "timestamps-day-first": (["31/01/2024 10:00:00", "01/02/2024 20:17:40"], [at(2024, 1, 31, 10), at(2024, 2, 1, 20, 17, 40)]),
    "timestamps-month-first": (["01/31/2024 10:00:00", "02/01/2024 20:17:40"], [at(2024, 1, 31, 10), at(2024, 2, 1, 20, 17, 40)]),
    "timestamps-pm": (["01/31/2024 10:00:00 AM", "02/01/2024 08:17:40 PM"], [at(2024, 1, 31, 10), at(2024, 2, 1, 20, 17, 40)]),
    "timestamps-z": (["2024-01-31T10:00:00Z", "1969-07-20T20:17:40Z"], [instant(2024, 1, 31, 10), instant(1969, 7, 20, 20, 17, 40)]),
    "timestamps-offset": (["2024-01-31 10:00:00+02:00", "1969-07-20 20:17:40-05:00"], [instant(2024, 1, 31, 8), instant(1969, 7, 21, 1, 17, 40)]),
    "timestamps-and-dates": (["2024-01-31 10:00:00", "2024-02-01"], [at(2024, 1, 31, 10), at(2024, 2, 1)]),
    "times": (["10:00:00", "23:59:59", "00:00:00"], [time(10), time(23, 59, 59), time(0)]),
    "times-minutes": (["10:00", "23:59", "00:00"], [time(10), time(23, 59), time(0)]),
    "times-fractions": (["10:00:00.25", "23:59:59.999999"], [time(10, 0, 0, 250000), time(23, 59, 59, 999999)]),
    "durations": (["25:00", "100:30", "99:59"], ["25:00", "100:30", "99:59"]),
    "percent": (["10%", "20.5%", "3%"], ["10%", "20.5%", "3%"]),
    "money": (["$1.50", "$20.00", "$3.25"], ["$1.50", "$20.00", "$3.25"]),
    "words": (["alpha", "beta", "gamma"], ["alpha", "beta", "gamma"]),
    "words-null": (["NULL", "a", "b"], ["NULL", "a", "b"]),
    "words-na": (["NA", "1", "2"], ["NA", "1", "2"]),
    "blanks-around": ([" a", "b ", " c "], [" a", "b ", " c "]),
    "uuids": (["550e8400-e29b-41d4-a716-446655440000", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"], ["550e8400-e29b-41d4-a716-446655440000", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"]),
    "versions": (["1.2.3", "10.0.1", "2.0"], ["1.2.3", "10.0.1", "2.0"]),
    "addresses": (["10.0.0.1", "192.168.1.1"], ["10.0.0.1", "192.168.1.1"]),
    "hexadecimal": (["0x1F", "0xFF", "0x00"], ["0x1F", "0xFF", "0x00"]),
    "empty": ([None, None], [None, None]),
}

# Of these DuckDB is of another opinion (known.toml); once is enough, as is a column without any value.
SEEN_OTHERWISE = {"empty", "integers-large", "t-f", "dates-ambiguous", "timestamps-month-first", "hexadecimal"}


def kinds(folder):
    for kind, (texts, values) in KINDS.items():
        ids = [str(i) for i in range(len(texts))]
        numbers = list(range(len(texts)))
        rows = list(zip(ids, texts))
        folder.add(f"type-{kind}.csv", written([("id", "value"), *rows]), table(("id", "value"), numbers, values))
        if kind in SEEN_OTHERWISE:
            continue
        twice = [x for row in rows for x in (row, (row[0], None))]
        made = table(("id", "value"), [n for n in numbers for _ in (0, 1)], [x for v in values for x in (v, None)])
        folder.add(f"type-{kind}-nulls.csv", written([("id", "value"), *twice]), made)
        folder.add(f"type-{kind}-quoted.csv", written([("id", "value"), *rows], always=True), table(("id", "value"), numbers, values))
    late = 3000
    ones = ["1"] * late
    for kind, text, values in (("float", "2.5", [1.0] * late + [2.5]), ("text", "x", ones + ["x"]), ("large", "9223372036854775808", ones + ["9223372036854775808"])):
        folder.add(f"late-{kind}.csv", "id,value\n" + "".join(f"{i},1\n" for i in range(late)) + f"{late},{text}\n",
                   table(("id", "value"), list(range(late + 1)), values))
    folder.add("late-value.csv", "id,value\n" + "".join(f"{i},\n" for i in range(late)) + f"{late},7.5\n",
               table(("id", "value"), list(range(late + 1)), [None] * late + [7.5]))
    folder.add("late-time.csv", "id,value\n" + "".join(f"{i},2024-01-01\n" for i in range(late)) + f"{late},2024-01-01 10:00:00\n",
               table(("id", "value"), list(range(late + 1)), [at(2024, 1, 1)] * late + [at(2024, 1, 1, 10)]))
    comma = "id;price\n1;1,5\n2;10,25\n3;-0,125\n"
    folder.add("decimal-comma.csv", comma, table(("id", "price"), [1, 2, 3], [1.5, 10.25, -0.125]))
    folder.add("decimal-comma.tsv", comma.replace(";", "\t"), table(("id", "price"), [1, 2, 3], [1.5, 10.25, -0.125]))
    folder.add("decimal-comma-dates.csv", "Datum;Betrag;Text\n31.01.2024;1,50;a\n01.02.2024;-20,75;b\n",
               table(("Datum", "Betrag", "Text"), [date(2024, 1, 31), date(2024, 2, 1)], [1.5, -20.75], ["a", "b"]))
    folder.add("thousands.csv", 'id,n\n1,"1,234"\n2,"12,345,678"\n3,"5"\n', table(("id", "n"), [1, 2, 3], ["1,234", "12,345,678", "5"]))
    folder.add("thousands-dots.csv", "id;n\n1;1.234,50\n2;12.345.678,25\n3;5,00\n")
