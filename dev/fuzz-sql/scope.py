"""What an expression of a query may use: the relations of FROM, those of the queries around it, and groups."""

from dataclasses import dataclass, field

from schema import INTEGERS

COMPARISONS = ["=", "=", "<>", "<", "<=", ">", ">="]
TYPES = ["int", "int", "num", "f8", "text", "date", "ts", "bool"]


def family(type):
    return "int" if type in INTEGERS else type


@dataclass
class Source:
    """One relation of a FROM clause under its alias."""

    alias: str
    columns: list
    rows: float
    # Columns of which no two rows have the same values, or None.
    key: list = None


@dataclass
class Scope:
    sources: list
    parent: object = None
    # Columns that USING has merged: unqualified names mean these.
    merged: dict = field(default_factory=dict)
    rows: float = 1
    qualified: bool = False


@dataclass
class Context:
    """Where an expression stands."""

    scope: Scope
    # Expressions that rows were grouped by, or None where they were not.
    keys: list = None
    aggregates: bool = False
    outer: bool = True
    subqueries: int = 1
    rows: float = 1
    # Whether the expression is the whole of a column that only the client sees.
    shown: bool = False
    # Of groups: the context of the rows below them, and whether there are several grouping sets.
    base: object = None
    sets: bool = False
