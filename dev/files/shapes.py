"""Delimited files whose difficulty is around the values: headers, lines above the table, ragged rows."""

from datetime import date

import pyarrow as pa

from delimited import BASE, DELIMITERS, NAMES, ROWS, VALUES, range_of, written
from made import table

FAO = [("France", "FRA", "1.5", "2.5"), ("Chad", "TCD", "3.25", None), ("Peru", "PER", "4.0", "5.5")]
FAO_VALUES = (["France", "Chad", "Peru"], ["FRA", "TCD", "PER"], [1.5, 3.25, 4.0], [2.5, None, 5.5])


def headers(folder):
    add = folder.add
    for name, first, last in (("years", "1960", "1961"), ("dates", "2024-01-01", "2024-02-01"), ("months", "Jan-60", "Feb-60"), ("quarters", "2024Q1", "2024Q2")):
        names = ("Country Name", "Code", first, last)
        add(f"header-{name}.csv", written([names, *FAO]), table(names, *FAO_VALUES))
        add(f"header-{name}-quoted.csv", written([names, *FAO], always=True).replace('""', ""), table(names, *FAO_VALUES))
    add("header-booleans.csv", "true,false\n1,2\n3,4\n", table(("true", "false"), [1, 3], [2, 4]))
    add("header-quoted-numbers.csv", '"1","2"\n1.5,2.5\n3.5,4.5\n')
    add("header-all-text.csv", "name,city\nAda,London\nGrace,New York\n", table(("name", "city"), ["Ada", "Grace"], ["London", "New York"]))
    add("header-all-text-no-header.csv", "Ada,London\nGrace,New York\nAda,Paris\nGrace,London\n")
    add("header-blanks.csv", " a , b ,c \n1,2,3\n4,5,6\n")
    add("header-words-with-blanks.csv", "first name,last name,total (EUR)\nAda,L,1\nGrace,H,2\n", table(("first name", "last name", "total (EUR)"), ["Ada", "Grace"], ["L", "H"], [1, 2]))
    add("header-twice.csv", "a,b,a\n1,2,3\n4,5,6\n", table(("a", "b", "a_1"), [1, 4], [2, 5], [3, 6]))
    add("header-thrice.csv", "a,a,a,a_2\n1,2,3,4\n5,6,7,8\n")
    add("header-case-only.csv", "id,ID,Id\n1,2,3\n4,5,6\n", table(("id", "ID_1", "Id_2"), [1, 4], [2, 5], [3, 6]))
    add("header-first-empty.csv", ",a,b\n0,1.5,x\n1,2.5,y\n", table(("column_1", "a", "b"), [0, 1], [1.5, 2.5], ["x", "y"]))
    add("header-several-empty.csv", "a,,b,\n1,2,3,4\n5,6,7,8\n", table(("a", "column_2", "b", "column_4"), [1, 5], [2, 6], [3, 7], [4, 8]))
    add("header-keywords.csv", "select,from,index,user,order\n1,2,3,4,5\n", table(("select", "from", "index", "user", "order"), [1], [2], [3], [4], [5]))
    add("header-with-quotes.csv", '"a ""b""",c\n1,2\n', table(('a "b"', "c"), [1], [2]))
    add("header-with-line-end.csv", '"a\nb",c\n1,2\n3,4\n', table(("a\nb", "c"), [1, 3], [2, 4]))
    add("header-long.csv", "n" * 200 + ",b\n1,2\n", table(("n" * 200, "b"), [1], [2]))
    add("header-one-column.csv", "a\n1\n2\n3\n", table("a", [1, 2, 3]))
    add("header-none-numbers.csv", "1,2.5\n2,3.5\n3,4.5\n", table(("column_1", "column_2"), [1, 2, 3], [2.5, 3.5, 4.5]))
    add("header-none-mixed.csv", "1,2.5,a\n2,3.5,b\n3,4.5,c\n", table(("column_1", "column_2", "column_3"), [1, 2, 3], [2.5, 3.5, 4.5], ["a", "b", "c"]))
    add("header-none-one-column.csv", "1\n2\n3\n", table(("column_1",), [1, 2, 3]))
    add("header-row-names.csv", '"Weight","Feed"\n"1",26.5,7\n"2",27.5,8\n"3",36.5,9\n')
    add("header-case-only-text.csv", "Name,NAME\nx,1\ny,2\n", table(("Name", "NAME_1"), ["x", "y"], [1, 2]))


def preambles(folder):
    for d, delimiter in DELIMITERS.items():
        text = written([NAMES, *ROWS], delimiter)
        folder.add(f"above-sep-{d}.csv", f"sep={delimiter}\n{text}", BASE)
        folder.add(f"above-sep-{d}-crlf.csv", f"sep={delimiter}\r\n" + text.replace("\n", "\r\n"), BASE)
        folder.add(f"above-comment-{d}.csv", f"# made by hand\n{text}", BASE)
        folder.add(f"above-comments-{d}.csv", f"# made by hand\n# second, with a comma; and more\n#\n{text}", BASE)
        folder.add(f"above-title-{d}.csv", f"Sales of all years\n{text}", BASE)
        folder.add(f"above-titles-{d}.csv", f"Sales of all years\nSource: the office\n\n{text}", BASE)
    text = written([NAMES, *ROWS])
    folder.add("above-blank-lines.csv", f"\n\n{text}", BASE)
    folder.add("above-title-quoted.csv", f'"Sales, of all years"\n{text}', BASE)
    folder.add("above-title-padded.csv", f"Sales of all years,,,\n{text}")
    lines = text.splitlines(keepends=True)
    folder.add("comments-between.csv", "".join([*lines[:3], "# a remark\n", *lines[3:]]), BASE)
    folder.add("comments-below.csv", f"{text}# the end\n", BASE)
    folder.add("comments-values.csv", "color,n\n#fff,1\n#000,2\n#abc,3\n", table(("color", "n"), ["#fff", "#000", "#abc"], [1, 2, 3]))
    folder.add("comments-header.csv", "#id,name\n1,x\n2,y\n")
    folder.add("below-total.csv", f"{text}Total\n")
    folder.add("above-metadata.csv", "Station: 12345\nName: North\nUnits: mm\n\ndate,rain\n2024-01-01,1.5\n2024-01-02,0.0\n2024-01-03,3.25\n",
               table(("date", "rain"), [date(2024, 1, 1), date(2024, 1, 2), date(2024, 1, 3)], [1.5, 0.0, 3.25]))


def shapes(folder):
    add = folder.add
    for d, delimiter in DELIMITERS.items():
        swap = lambda text: text.replace(",", delimiter)
        add(f"trailing-rows-{d}.csv", swap("a,b\n1,2,\n3,4,\n"), table("ab", [1, 3], [2, 4]))
        add(f"empty-columns-{d}.csv", swap("a,b,c\n1,,\n2,,\n3,,\n"), table("abc", [1, 2, 3], [None] * 3, [None] * 3))
    add("trailing-all.csv", "a,b,\n1,2,\n3,4,\n", table("ab", [1, 3], [2, 4]))
    add("trailing-header.csv", "a,b,\n1,2\n3,4\n", table("ab", [1, 3], [2, 4]))
    add("short-rows.csv", "a,b,c\n1,2,3\n4,5\n6,7,8\n9\n10,11,12\n")
    add("long-rows.csv", "a,b\n1,2\n3,4,5\n6,7\n")
    add("blanks-after-commas.csv", "a, b, c\n1, 2.5, x\n2, 3.5, y y\n", table("abc", [1, 2], [2.5, 3.5], [" x", " y y"]))
    add("blanks-before-commas.csv", "a ,b ,c\n1 ,2.5 ,x\n2 ,3.5 ,y\n")
    add("blanks-padded.csv", "id ,name    ,n\n1  ,x       , 10\n22 ,yy      ,  7\n")
    add("one-column-blank-line.csv", "v\n1\n\n3\n", table("v", [1, None, 3]))
    add("one-column-blank-line-text.csv", "v\na\n\nc\n", table("v", ["a", None, "c"]))
    add("one-column-text.csv", "word\nalpha\nbeta\ngamma\n", table(("word",), ["alpha", "beta", "gamma"]))
    add("one-column-sentences.csv", "text\nHello there you\nGood bye all\nSo long\n", table(("text",), ["Hello there you", "Good bye all", "So long"]))
    add("blank-line-between.csv", "a,b\n1,2\n\n3,4\n", table("ab", [1, 3], [2, 4]))
    add("blank-lines-below.csv", "a,b\n1,2\n3,4\n\n\n", table("ab", [1, 3], [2, 4]))
    add("empty-file.csv", "")
    add("one-value.csv", "a\n")
    add("only-commas.csv", "a,b,c\n,,\n1,2,3\n,,\n", table("abc", [None, 1, None], [None, 2, None], [None, 3, None]))
    add("mixed-line-ends.csv", "a,b\r\n1,2\n3,4\r\n5,6\n", table("ab", [1, 3, 5], [2, 4, 6]))
    add("last-field-empty.csv", "a,b\n1,\n2,\n3,x", table("ab", [1, 2, 3], [None, None, "x"]))
    add("end-of-file-mark.csv", "a,b\n1,2\n3,4\n\x1a")
    for wide in (100, 500, 2000):
        names = [f"c{i}" for i in range(wide)]
        rows = [[str(i * r) for i in range(wide)] for r in (1, 2, 3)]
        add(f"wide-{wide}.csv", written([names, *rows]), table(names, *([i, 2 * i, 3 * i] for i in range(wide))))
    add("long-fields.csv", written([("id", "t"), *((str(i), "x" * 100_000 + str(i)) for i in range(5))]), table(("id", "t"), list(range(5)), ["x" * 100_000 + str(i) for i in range(5)]))
    rows = 30_000
    add("many-rows.csv", "id,half,word,day\n" + "".join(f"{i},{i / 2},w{i % 7},2024-01-{i % 28 + 1:02}\n" for i in range(rows)),
        table(("id", "half", "word", "day"), list(range(rows)), [i / 2 for i in range(rows)], [f"w{i % 7}" for i in range(rows)], [date(2024, 1, i % 28 + 1) for i in range(rows)]))
    add("many-quoted-line-ends.csv", "id,t\n" + "".join(f'{i},"line one of this text\n7,second line"\n' for i in range(rows)),
        table(("id", "t"), list(range(rows)), ["line one of this text\n7,second line"] * rows))
    add("many-nulls.csv", "a,b\n" + "".join(f"{i if i % 3 else ''},{'x' if i % 2 else ''}\n" for i in range(10_000)),
        table("ab", [i if i % 3 else None for i in range(10_000)], ["x" if i % 2 else None for i in range(10_000)]))
    add("bars-in-text.csv", "a,b\nx|y,1\nz|w,2\n", table("ab", ["x|y", "z|w"], [1, 2]))
    add("semicolons-in-text.csv", "a,b\nx;y;z,1\nz;w;v,2\n", table("ab", ["x;y;z", "z;w;v"], [1, 2]))
    add("commas-in-tabs.tsv", "a\tb\nx, y, z\t1,5\nz, w, v\t2,5\n", table("ab", ["x, y, z", "z, w, v"], [1.5, 2.5]))
    add("colons.csv", "a,b\n10:20:x,1\n11:21:y,2\n", table("ab", ["10:20:x", "11:21:y"], [1, 2]))


def folders(folder):
    """Several files that are read as one: patterns, folders, and values of columns in the paths."""
    put = folder.put
    part = lambda i: f"id,v\n{i},{i}.5\n{i + 1},{i + 1}.5\n"
    whole = table(("id", "v"), range_of(7), [i + 0.5 for i in range(1, 7)])
    for i in (1, 3, 5):
        put(f"parts/part-{i}.csv", part(i))
        put(f"packed/part-{i}.csv.gz", part(i))
        put(f"deep/{i}/part.csv", part(i))
        put(f"lines/part-{i}.jsonl", "".join(f'{{"id":{n},"v":{n}.5}}\n' for n in (i, i + 1)))
        put(f"hive/year=202{i}/part.csv", part(i))
        put(f"hive-two/year=202{i}/month={i:02}/part.csv", part(i))
        put(f"hive-text/k=a{i}/part.csv", part(i))
        put(f"hive-lines/year=202{i}/part.jsonl", "".join(f'{{"id":{n},"v":{n}.5}}\n' for n in (i, i + 1)))
    case = lambda name, pattern, made: folder.case(name, folder.root / pattern, made)
    case("pattern", "parts/*.csv", whole)
    case("pattern-question-mark", "parts/part-?.csv", whole)
    case("pattern-class", "parts/part-[13].csv", whole.slice(0, 4))
    case("pattern-packed", "packed/*.csv.gz", whole)
    case("pattern-folders", "deep/*/part.csv", whole)
    case("pattern-any-depth", "deep/**/*.csv", whole)
    case("pattern-lines", "lines/*.jsonl", whole)
    case("pattern-nothing", "parts/*.tsv", "no")
    years = [y for y in (2021, 2023, 2025) for _ in (0, 1)]
    hive = whole.append_column("year", pa.array(years))
    case("hive", "hive/*/*.csv", hive)
    case("hive-any-depth", "hive/**/*.csv", hive)
    case("hive-lines", "hive-lines/*/*.jsonl", hive)
    case("hive-two", "hive-two/*/*/*.csv", None)
    case("hive-text", "hive-text/*/*.csv", whole.append_column("k", pa.array([k for k in ("a1", "a3", "a5") for _ in (0, 1)])))
    put("types/1.csv", "id,v\n1,1\n2,2\n")
    put("types/2.csv", "id,v\n3,2.5\n4,x\n")
    case("types-of-all", "types/*.csv", table(("id", "v"), range_of(5), ["1", "2", "2.5", "x"]))
    put("order/1.csv", "a,b\n1,2\n")
    put("order/2.csv", "b,a\n3,4\n")
    case("other-order", "order/*.csv", table("ab", [1, 4], [2, 3]))
