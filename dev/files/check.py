"""Reads files in every way that there is, and beside DuckDB and pyarrow.

Usage: python dev/files/check.py THALWEG [--only PATTERN] [--packages --cache FOLDER] [--apache FOLDER] [FILE…]

THALWEG is the binary. The files are those that generate.py makes; with --packages those that come inside
packages of PyPI and npm (packages.py); with --apache those of Apache's test repositories (apache.py); or
those that are named. Each is read by FROM with 1, 2 and 8
threads, by `thalweg load`, and by DuckDB, or pyarrow where DuckDB has no reader, or compared with what
the generator says is in it. Names, families of types and all values must agree. known.toml lists the files
that may differ, with the reason of each; one that is listed and agrees is an error too.
"""

import argparse
import dataclasses
import fnmatch
import pathlib
import sys
import tempfile
import time
import tomllib

import pyarrow as pa

import apache
import compare
import generate
import packages
import peers
from made import Case
from ours import Ours, Refused

HERE = pathlib.Path(__file__).parent
# How a reading may go wrong, in the order in which it is told.
WAYS = {
    "hang": "gave no answer in time, or ended the process",
    "threads": "FROM depends on the number of threads",
    "load": "FROM and load differ",
    "order": "the same rows in another order",
    "made": "differs from what it was made from",
    "peer": "differs from the peer",
    "lenient": "is read where the peer refuses (with --apache)",
}


# What is said of a difference to the peer where the generator knows better.
AS_MADE = " (ours is what it was made from)"


@dataclasses.dataclass
class Verdict:
    """What was found of one file: a line for each way in which it differs."""

    name: str
    lines: dict = dataclasses.field(default_factory=dict)
    # Whether there was a peer that read the file, and ours did.
    peer: bool = False
    read: bool = False

    def differs(self, way, before, found, after=""):
        """Keeps the first line of each way."""
        if found.startswith(compare.ORDER):
            way = "order"
        self.lines.setdefault(way, before + found + after)


def known():
    """Names of files or patterns of them, and for each the ways in which it may differ and the reason.

    An entry that has `files` is of those, and its own name only says what they have in common.
    """
    found = {}
    with open(HERE / "known.toml", "rb") as file:
        for heading, entries in tomllib.load(file).items():
            for name, entry in entries.items():
                unknown = set(entry) - {"differs", "reason", "sometimes", "files"} | set(entry["differs"]) - set(WAYS)
                if unknown:
                    raise SystemExit(f"known.toml, {heading}, {name!r}: {', '.join(unknown)} is not known")
                for file in entry.get("files", [name]):
                    if file in found:
                        raise SystemExit(f"known.toml lists {file!r} twice")
                    found[file] = entry
    return found


def judge(case, answers, loaded, peer, strict=False):
    """Compares the readings of one file; each is a table or a `Refused`. `strict`: what the peer refuses is broken."""
    verdict = Verdict(case.name)
    refused = lambda answer: isinstance(answer, Refused)
    for who, answer in zip(("1 thread", "2 threads", "8 threads", "load"), [*answers, loaded]):
        if refused(answer) and answer.kind != "error":
            verdict.lines.setdefault("hang", f"{who}: {answer.kind}: {answer}")
    ours = answers[0]
    verdict.read = not refused(ours)
    for threads, other in zip((2, 8), answers[1:]):
        if refused(ours) or refused(other):
            if str(ours) != str(other):
                verdict.lines.setdefault("threads", f"1 thread: {line(ours)}; {threads}: {line(other)}")
        elif found := compare.difference(other, ours, exactly=True):
            verdict.differs("threads", f"{threads} threads: ", found, " with 1")
    if refused(ours) or refused(loaded):
        if refused(ours) != refused(loaded):
            verdict.lines["load"] = f"FROM: {line(ours)}; load: {line(loaded)}"
    elif found := compare.difference(loaded, ours):
        verdict.differs("load", "load: ", found)
    if case.made is not None:
        for who, answer in (("", ours), ("load: ", loaded)):
            if found := against_made(answer, case.made):
                verdict.differs("made", who, found)
    if not refused(peer):
        verdict.peer = True
        as_json = peers.kind(case.path) == "json"
        found = f"refused: {ours}" if refused(ours) else compare.difference(ours, peer, as_json=as_json)
        if found:
            as_made = case.made is not None and "made" not in verdict.lines
            verdict.differs("peer", "", found, AS_MADE if as_made else "")
    elif strict and not refused(ours):
        verdict.lines["lenient"] = f"{line(ours)}; the peer: {line(peer)}"
    return verdict


def against_made(ours, made):
    """How an answer differs from what the file was made from: a table, or a word of an error."""
    if isinstance(made, pa.Table):
        return f"refused: {ours}" if isinstance(ours, Refused) else compare.difference(ours, made)
    if not isinstance(ours, Refused):
        return f"should be an error that says {made!r}, and is {line(ours)}"
    return None if made in str(ours) else f"the error does not say {made!r}: {ours}"


def line(answer):
    if isinstance(answer, Refused):
        return f"refused: {answer}"
    return f"{answer.num_rows} rows of {answer.num_columns} columns"


def read(binary, cases, folder, seconds, peer_of_parquet, strict, quiet=False):
    """The verdict on each case, in order."""
    asked = peers.Peers(seconds, peer_of_parquet)
    with Ours(binary, folder, seconds) as ours:
        tables = {case.name: f"t{i}" for i, case in enumerate(cases)}
        begun = time.monotonic()
        refused = ours.load([(tables[case.name], case.path) for case in cases])
        if not quiet:
            print(f"loaded {len(cases) - len(refused)} of {len(cases)} files in {time.monotonic() - begun:.0f} s", flush=True)
        for case in cases:
            started = time.monotonic()
            answers = ours.select(case.path)
            loaded = refused.get(tables[case.name])
            if loaded is None:
                try:
                    loaded = ours.table(tables[case.name])
                except Refused as e:
                    loaded = e
            try:
                peer = asked.read(case.path)
            except Refused as e:
                peer = e
            yield judge(case, answers, loaded, peer, strict)
            if (took := time.monotonic() - started) > seconds:
                print(f"{case.name}: {took:.0f} s for all its readings", flush=True)


def tell(verdict, listed, used, strange):
    """Prints how a file differs, and returns in how many ways that known.toml does not list."""
    wrong = 0
    entries = [name for name in listed if fnmatch.fnmatchcase(verdict.name, name)]
    for way in WAYS:
        if way not in verdict.lines:
            continue
        excuses = [name for name in entries if way in listed[name]["differs"]]
        used |= {(name, way) for name in excuses}
        wrong += not excuses
        if not excuses or strange:
            print(f"{'known ' if excuses else 'WRONG '} {verdict.name}: {way}: {verdict.lines[way][:300]}", flush=True)
    return wrong


def sum_up(verdicts, listed, used, whole):
    """Prints how much agrees, and returns how many entries of known.toml are not true."""
    wrong = 0
    if whole:
        for name, entry in listed.items():
            for way in entry["differs"]:
                if (name, way) not in used and not entry.get("sometimes") and fnmatch.filter([v.name for v in verdicts], name):
                    wrong += 1
                    print(f"WRONG  {name}: known.toml says that it may differ ({way}: {WAYS[way]}), and it does not")
    share = lambda n, of: f"{n} of {of} ({100 * n / max(of, 1):.1f} %)"
    count = lambda *ways: share(sum(not set(ways) & set(v.lines) for v in verdicts), len(verdicts))
    with_peer = [v for v in verdicts if v.peer]
    print(f"files: {len(verdicts)}; read: {share(sum(v.read for v in verdicts), len(verdicts))}")
    print(f"FROM with 1, 2 and 8 threads agree: {count('threads', 'hang')}; with load: {count('load', 'hang')}")
    print(f"rows are in order in every reading: {count('order')}")
    print(f"as they were made, where that is known: {count('made')}")
    print(f"agree with a peer, of those that it reads: {share(sum('peer' not in v.lines for v in with_peer), len(with_peer))}")
    better = sum("peer" in v.lines and v.lines["peer"].endswith(AS_MADE) for v in with_peer)
    print(f"of those that do not, ours is what it was made from: {better}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("thalweg")
    parser.add_argument("files", nargs="*", help="files, or folders of them, instead of those of the generator")
    parser.add_argument("--only", default="*", help="a pattern of names, such as 'csv/*'")
    parser.add_argument("--packages", action="store_true", help="the files inside packages instead of those of the generator")
    parser.add_argument("--cache", help="where packages are kept")
    parser.add_argument("--apache", metavar="FOLDER", help="the files of parquet-testing and arrow-testing, which are in this folder")
    parser.add_argument("--seconds", type=float, default=20, help="what a reading may take")
    parser.add_argument("--pyarrow", action="store_true", help="ask pyarrow, not DuckDB, what is in Parquet files")
    parser.add_argument("--strange", action="store_true", help="show also what known.toml lists")
    arguments = parser.parse_intermixed_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="thalweg-files-") as folder:
        if arguments.files:
            cases = [Case(path, path) for path in packages.found(arguments.files)]
        elif arguments.packages:
            if not arguments.cache:
                raise SystemExit("--packages needs --cache FOLDER, where they are kept")
            cases = packages.cases(pathlib.Path(arguments.cache))
        elif arguments.apache:
            arguments.pyarrow = True
            cases = apache.cases(arguments.apache, pathlib.Path(folder, "files"))
        else:
            cases = generate.cases(pathlib.Path(folder, "files"))
        chosen = [case for case in cases if fnmatch.fnmatchcase(case.name, arguments.only)]
        listed, used, verdicts, wrong = known(), set(), [], 0
        for verdict in read(arguments.thalweg, chosen, folder, arguments.seconds, "pyarrow" if arguments.pyarrow else "duckdb", bool(arguments.apache)):
            verdicts.append(verdict)
            wrong += tell(verdict, listed, used, arguments.strange)
    wrong += sum_up(verdicts, listed, used, len(chosen) == len(cases))
    print(f"files: {wrong} wrong, in {time.monotonic() - begun:.0f} s")
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
