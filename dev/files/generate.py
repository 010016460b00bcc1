"""Makes the files of the corpus.

Usage: python dev/files/generate.py FOLDER

Some hundred small files of every kind, each with the table that it was made from where that is known:
delimited files (delimited.py, shapes.py), JSON (documents.py), Parquet and Arrow (columnar.py), workbooks
(books.py), and folders of them. The same files every time.
"""

import pathlib
import sys

import books
import columnar
import delimited
import documents
import shapes
from made import Folder

KINDS = {
    "csv": (delimited.dialects, delimited.quotes, delimited.encodings, delimited.compressed, delimited.kinds,
            shapes.headers, shapes.preambles, shapes.shapes),
    "json": (documents.documents,),
    "parquet": (columnar.parquet,),
    "arrow": (columnar.arrow,),
    "xlsx": (books.books,),
    "folders": (shapes.folders,),
}


def cases(root):
    """Writes all files, and lists them with what is in them."""
    found = []
    for kind, makers in KINDS.items():
        folder = Folder(root, kind)
        for maker in makers:
            maker(folder)
        found += folder.cases
    names = [case.name for case in found]
    assert len(names) == len(set(names)), sorted(n for n in names if names.count(n) > 1)
    return found


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(f"{len(cases(pathlib.Path(sys.argv[1])))} files")
