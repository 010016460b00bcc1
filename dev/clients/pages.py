"""Tables of what was found, and the pages that they are kept in."""

BEGIN = "<!-- found by dev/clients/check.py --table -->"
END = "<!-- end of what was found -->"

# In the order of the table; others come after them.
FEATURES = [
    "queries",
    "parameters",
    "prepared",
    "types as text",
    "types in binary",
    "changes",
    "transactions",
    "conflicts",
    "copy in",
    "copy out",
    "data frames",
    "many rows",
    "server-side cursors",
    "streaming",
    "pipeline",
    "cancel",
    "errors",
    "metadata",
    "settings",
    "passwords",
    "TLS",
    "many at once",
]


def features(found):
    """A column for each client, a row for each feature."""
    names = FEATURES + sorted({f for cells in found.values() for f in cells} - set(FEATURES))
    lines = [["feature", *found], ["---"] * (len(found) + 1)]
    for name in names:
        cells = [cells.get(name) for cells in found.values()]
        if any(cell is not None for cell in cells):
            words = {None: "", True: "ok", False: "**failed**"}
            lines.append([name, *(words[cell] for cell in cells)])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def parts(page):
    """What is before the table, the table, what is after it."""
    before, _, rest = page.read_text().partition(BEGIN)
    table, end, after = rest.partition(END)
    if not end:
        raise SystemExit(f"{page} has no place for a table: between {BEGIN} and {END}")
    return before, table.strip(), after


def read(page):
    return parts(page)[1]


def write(page, table):
    before, _, after = parts(page)
    page.write_text(f"{before}{BEGIN}\n{table}\n{END}{after}")
