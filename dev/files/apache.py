"""The files of Apache's parquet-testing and arrow-testing: what other writers make, and what has broken readers.

Neither is a package. Both are cloned by whoever runs them:

    git clone --depth 1 https://github.com/apache/parquet-testing FOLDER/parquet-testing
    git clone --depth 1 https://github.com/apache/arrow-testing FOLDER/arrow-testing
    python dev/files/check.py THALWEG --apache FOLDER
"""

import pathlib

from made import Case

REPOSITORIES = ("parquet-testing", "arrow-testing")
# Kinds of files by the folders that they are in, where their names do not say them, with the ending that does.
FOLDERS = {
    "arrow-testing/data/arrow-ipc-stream": ".arrow",
    "arrow-testing/data/arrow-ipc-file": ".arrow",
    "arrow-testing/data/forward-compatibility": ".arrow",
    "arrow-testing/data/parquet": ".parquet",
    "arrow-testing/data/csv": ".csv",
    "parquet-testing": ".parquet",
}
# Of the others these are no tables: what they are about, the answers to the files beside them, and
# formats that are read by nobody here.
OTHERS = (".md", ".txt", ".yaml", ".json", ".json.gz", ".bin", ".data", ".proto", ".py", ".metadata", ".value")


def cases(folder, scratch):
    """All files, by links whose endings say what they are."""
    root, scratch, found = pathlib.Path(folder).resolve(), pathlib.Path(scratch), []
    scratch.mkdir()
    for repository in REPOSITORIES:
        if not (root / repository).is_dir():
            raise SystemExit(f"{root / repository} is not there; its repository is https://github.com/apache/{repository}")
        for path in sorted((root / repository).rglob("*")):
            name = path.relative_to(root).as_posix()
            ending = next((ending for f, ending in FOLDERS.items() if name.startswith(f + "/")), None)
            if ending is None or not path.is_file() or "/." in name or name.endswith(OTHERS):
                continue
            named = name if name.endswith((ending, ".csv", ".csv.gz")) else name + ending
            link = scratch / named.replace("/", "+")
            link.symlink_to(path)
            found.append(Case(name, str(link)))
    return found
