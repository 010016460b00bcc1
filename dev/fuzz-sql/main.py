#!/usr/bin/env python3
"""Random queries and changes, asked of Thalweg in every mode, of PostgreSQL and of DuckDB.

    main.py THALWEG                              20,000 queries from seed 1
    main.py THALWEG --seed 7 --seconds 3600
    main.py THALWEG --modes memory,disk --keep FOLDER

A schema with its rows is made from the seed, loaded everywhere and asked some hundred queries; then the next.
What differs is reduced to a small script, printed, and with --keep also written into a folder, where the next
run finds that it is known.

The modules, in reading order: schema (tables and rows), tree (statements), scope,
expressions, groups and grammar (queries), changes (scripts),
engines (who is asked), known (what is not asked, and why), compare and verdict (whether answers are the same),
oracles (TLP and NoREC), reduce.
"""

import argparse
import collections
import copy
import hashlib
import multiprocessing
import pathlib
import random
import signal
import shutil
import sys
import tempfile
import time
import traceback

import compare
import known
import oracles
import reduce
import verdict
from changes import Changes
from engines import MODES, Answer, DuckDB, Lost, Ours, PostgreSQL, forget_made, postgresql
from grammar import Grammar
from schema import Maker, literal


class Finding:
    # The statement before it was reduced.
    whole = None

    def __init__(self, kind, text, mode, seed, sql, expected, ours, vote=""):
        self.kind, self.text, self.mode, self.seed = kind, text, mode, seed
        self.sql, self.expected, self.ours, self.vote = sql, expected, ours, vote

    def script(self):
        comment = lambda label, answer: "\n".join(f"-- {label}{line}" for line in str(answer).split("\n"))
        return "\n".join([
            f"-- {self.kind} in mode {self.mode}, seed {self.seed}: {self.text}",
            f"-- {self.vote}" if self.vote else "--",
            f"-- from: {self.whole}" if self.whole and len(self.whole) < 4000 else "--",
            self.sql,
            comment("expected: ", self.expected),
            comment("ours:     ", self.ours),
        ])


class Job:
    """One worker: its engines, its schemas, its findings."""

    def __init__(self, options, number, postgres_folder, queue):
        self.options, self.number, self.queue = options, number, queue
        self.folder = tempfile.mkdtemp(prefix="thalweg-fuzz-sql-")
        self.postgres_folder = postgres_folder
        self.count = collections.Counter()
        self.asked = 0
        self.seen = collections.Counter()

    def start(self):
        o = self.options
        self.postgresql = PostgreSQL(self.postgres_folder, f"fuzz{self.number}", o.timeout)
        self.duckdb = DuckDB(o.timeout)
        self.ours = None if o.self_check else Ours(o.thalweg, o.modes, self.folder, o.timeout * 4)

    def stop(self):
        self.postgresql.close()
        if self.ours:
            self.ours.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, seeds, until):
        self.start()
        try:
            for seed in seeds:
                if time.monotonic() > until or self.enough():
                    break
                self.batch(seed, until)
        finally:
            self.report()
            self.stop()

    def enough(self):
        return self.options.seconds is None and self.asked >= self.options.queries / self.options.jobs

    def report(self):
        self.queue.put(("count", dict(self.count)))
        self.asked += self.count["queries"]
        self.count = collections.Counter()

    def batch(self, seed, until):
        """One schema and its queries."""
        o = self.options
        rng = random.Random(seed)
        self.tables = Maker(rng).schema(o.rows)
        self.seed = seed
        self.load()
        total = 0
        only = o.only and int(o.only.split("/")[1])
        for i in range(o.batch) if not o.only else [only]:
            if time.monotonic() > until:
                break
            # Each query has a seed of its own, so that what one draws does not move the next.
            self.at, self.index = f"{seed}/{i}", i
            rng = random.Random(f"{seed}/{i}")
            try:
                x = rng.random()
                if x < o.changes and self.ours:
                    self.script(rng)
                elif x < o.changes + o.oracles and self.ours:
                    self.oracle(rng)
                else:
                    self.query(rng)
            except Lost as lost:
                self.note(lost.kind, f"lost: {lost}", "?", f"-- {self.at}", Answer("error"), Answer("error"))
                self.restart()
            total += 1
            self.count["queries"] += 1
            if total % 50 == 0:
                self.report()
        if self.ours:
            for name, server in self.ours.servers.items():
                for panic in server.panics():
                    self.note("panic", panic, name, self.at, Answer("error"), Answer("error", message=panic))

    def load(self):
        began = time.monotonic()
        self.load_everywhere()
        self.count["seconds loading"] += time.monotonic() - began

    def load_everywhere(self):
        self.postgresql.load_all(self.tables)
        self.duckdb.load(self.tables)
        if self.ours:
            self.ours.load(self.tables)

    def restart(self):
        """After a crash or a hang: everything of ours anew."""
        if self.ours:
            for server in self.ours.servers.values():
                if server.process:
                    server.process.kill()
                    server.process.wait()
                    server.process = None
                if server.disk:
                    shutil.rmtree(server.folder / "db", ignore_errors=True)
                server.start()
            for mode in self.ours.modes:
                self.ours.open(mode)
        self.postgresql.connect()
        self.load()

    def timed(self, name, engine, sql):
        began = time.monotonic()
        answer = engine.ask(sql)
        took = time.monotonic() - began
        self.count[f"seconds of {name}"] += took
        if took > 3 and self.options.show:
            print(f"-- {self.at} {name} took {took:.1f} s\n{sql}", flush=True)
        return answer

    # One query

    def query(self, rng):
        query = Grammar(rng, self.tables).query()
        sql = query.sql("postgresql")
        expected = self.timed("postgresql", self.postgresql, sql)
        self.count[f"postgresql {expected.kind}"] += 1
        if self.options.show and expected.kind == "error":
            print(f"-- {self.at} {expected}\n{sql}", flush=True)
        memo = []

        def duckdb():
            if not memo:
                memo.append(self.timed("duckdb", self.duckdb, query.sql("duckdb")))
            return memo[0]

        if not self.ours:
            answer = duckdb()
            self.count[f"duckdb {answer.kind}"] += 1
            if answer.kind == expected.kind == "rows":
                different = compare.difference(answer, expected, query.total)
                if different:
                    self.count["peers differ"] += 1
                    print(f"-- {self.at} peers differ: {different}\n{sql}", flush=True)
            elif self.options.show and expected.kind == "rows":
                print(f"-- {self.at} DuckDB {answer}\n{sql}", flush=True)
            return
        modes = rng.sample(self.ours.modes, min(self.options.per_query or 99, len(self.ours.modes)))
        if self.options.both_peers and expected.kind == "rows":
            answer = duckdb()
            if answer.kind == "rows" and compare.difference(answer, expected, query.total):
                self.count["peers differ"] += 1
            self.count[f"duckdb {answer.kind}"] += 1
        for mode in modes:
            answer = self.timed(mode, self.ours.sessions[mode], query.sql("thalweg"))
            self.count["asked"] += 1
            asked = query.sql("postgresql")
            found = verdict.judge(answer, expected, duckdb, mode, query.total, query.strict, asked)
            if answer.kind == "error" and expected.kind == "error" and answer.code != expected.code:
                self.count[f"code {expected.code} is {answer.code}"] += 1
            if found:
                self.found(found, query, mode, expected, answer, duckdb())
                break

    def found(self, found, query, mode, expected, answer, duckdb):
        kind, text = found
        self.count[f"found {kind}"] += 1
        key = verdict.signature(kind, text)
        self.seen[key] += 1
        vote = verdict.vote(answer, expected, duckdb, query.total)
        if kind in ("hang", "crash"):
            panics = self.ours.servers[MODES[mode][0]].panics()
            if panics:
                text += "\n-- " + panics[0].replace("\n", "\n-- ")
            self.note(kind, text, mode, self.script_of(self.tables, query), expected, answer, vote)
            self.restart()
            return
        # Of rows that differ each may be another fault; errors say themselves which they are.
        if self.seen[key] > (self.options.reduce if kind == "rows" else 1) or kind != "rows" and self.is_kept(kind, key):
            return
        began = time.monotonic()
        small, tables, mode = self.reduce(query, kind, key, mode)
        sql = small.sql("thalweg")
        expected, answer = self.last if self.last else (expected, answer)
        self.note(kind, text, mode, self.script_of(tables, small), expected, answer, vote, verdict.shape(sql) if kind == "rows" else key,
                  query.sql("thalweg"))
        self.reload(mode)
        self.count["seconds reducing"] += time.monotonic() - began

    def reload(self, mode):
        """The tables of the schema again, where they were reduced."""
        self.postgresql.load_all(self.tables)
        self.ours.load(self.tables, [MODES[mode][0]])

    def is_kept(self, kind, shape):
        return self.options.keep and kept(self.options.keep, kind, shape).exists()

    def note(self, kind, text, mode, sql, expected, ours, vote="", shape=None, whole=None):
        finding = Finding(kind, text, mode, self.at, sql, expected, ours, vote)
        finding.whole = whole
        self.queue.put(("finding", finding, shape or verdict.signature(kind, text)))

    def script_of(self, tables, node):
        lines = []
        for t in tables:
            if len(t.rows) > 200:
                lines.append(f"-- {t.name}: {len(t.rows)} rows of seed {self.seed}")
            lines.append(t.create("thalweg") + ";")
            for piece in t.pieces():
                if len(t.rows) <= 200:
                    rows = ", ".join("(" + ", ".join(literal(v, c) for v, c in zip(row, t.columns)) + ")" for row in piece)
                    lines.append(f"INSERT INTO {t.name} VALUES {rows};")
        return "\n".join([*lines, node.sql("thalweg") + ";"])

    # Reducing

    def reduce(self, query, kind, key, mode):
        """The query and tables made small; the last answers are kept in self.last."""
        self.last = None
        seconds = self.options.reduce_seconds
        # The plainest mode that fails is the best to debug.
        for plain in ("memory", "operators"):
            if plain in self.ours.modes and self.fails(query, plain, kind, key):
                mode = plain
                break
        self.fails(query, mode, kind, key)
        small = query

        def on(tables):
            try:
                self.put(tables, mode)
            except Lost:
                return False
            return self.fails(small, mode, kind, key)

        # Most errors need no rows, and without them every candidate is quick.
        tables = [t for t in self.tables]
        empty = [copy.copy(t) for t in self.tables]
        for t in empty:
            t.rows = []
        if on(empty):
            tables = empty
        else:
            self.put(tables, mode)
        small = reduce.reduce_statement(query, lambda q: self.fails(q, mode, kind, key), seconds)
        if tables is empty or on(empty):
            tables = empty
        if on(tables):
            tables = reduce.reduce_rows(tables, on, seconds)
            on(tables)
            small = reduce.reduce_statement(small, lambda q: self.fails(q, mode, kind, key), seconds / 2)
        self.fails(small, mode, kind, key)
        return small, tables, mode

    def put(self, tables, mode):
        """The tables alone, in PostgreSQL and in the server of a mode."""
        self.postgresql.load_all(tables)
        server = MODES[mode][0]
        wire = self.ours.sessions[mode]
        forget_made(wire)
        for t in self.tables:
            wire.ask(f"DROP TABLE IF EXISTS {t.name}", 60)
        for t in tables:
            wire.fill(t, "thalweg")
        if self.ours.servers[server].disk:
            self.ours.restart(server)

    def fails(self, query, mode, kind, key):
        expected = self.postgresql.ask(query.sql("postgresql"), 5)
        if expected.kind == "error" and kind not in ("accepted", "panic", "internal"):
            return False
        if expected.kind == "hang":
            self.postgresql.connect()
            return False
        answer = self.ours.sessions[mode].ask(query.sql("thalweg"))
        if answer.kind in ("hang", "crash"):
            raise Lost(answer.kind, f"{answer.message}: {query.sql('thalweg')}")
        duckdb = lambda: self.duckdb.ask(query.sql("duckdb"))
        asked = query.sql("postgresql")
        found = verdict.judge(answer, expected, duckdb, mode, query.total, query.strict, asked)
        if found and found[0] == kind and verdict.signature(*found) == key:
            self.last = (expected, answer)
            return True
        return False

    # Oracles

    def oracle(self, rng):
        pair = oracles.pair(Grammar(rng, self.tables))
        mode = rng.choice(self.ours.modes)
        different = self.pair_differs(pair, mode)
        self.count["oracles"] += 1
        if not different:
            return
        self.count["found " + pair.kind] += 1
        self.seen[pair.kind] += 1
        if self.seen[pair.kind] > self.options.reduce:
            return
        small = reduce.reduce_statement(pair, lambda p: bool(self.pair_differs(p, mode)), self.options.reduce_seconds)
        first, second = self.last
        self.note(pair.kind, different, mode, self.script_of(self.tables, small), first, second, shape=pair.kind + verdict.shape(small.sql("thalweg")))

    def pair_differs(self, pair, mode):
        answers = []
        for query in pair.queries():
            answer = self.ours.sessions[mode].ask(query.sql("thalweg"))
            if answer.kind in ("hang", "crash"):
                raise Lost(answer.kind, f"{answer.message}: {query.sql('thalweg')}")
            answers.append(answer)
        if any(a.kind != "rows" for a in answers):
            return None
        different = compare.difference(*answers)
        if different:
            self.last = tuple(answers)
        return different

    # Changes

    def script(self, rng):
        script = Changes(rng, self.tables, 10_000_000 + 400_000 * self.index).script()
        if script is None:
            return
        self.count["scripts"] += 1
        self.before = [copy.copy(t) for t in self.tables]
        expected = self.play(self.postgresql, script)
        for name in self.ours.writers():
            found = self.compare_script(script, expected, self.play(self.ours.sessions[name], script), name)
            if not found:
                continue
            kind, text, theirs, ours = found
            self.count[f"found script {kind}"] += 1
            key = verdict.signature("script " + kind, text) if kind not in ("rows", "count") else "script " + kind
            self.seen[key] += 1
            self.seen[key] += self.seen[verdict.signature(kind, text)]
            self.after_script(script)
            if self.seen[key] > (1 if kind not in ("rows", "count") else self.options.reduce) or self.is_kept("script " + kind, key):
                self.ours.load(self.tables)
                return
            small, tables = self.reduce_script(script, name, kind, text)
            theirs, ours = self.last or (theirs, ours)
            self.note("script " + kind, text, name, self.script_of(tables, small), theirs, ours, shape=key if kind not in ("rows", "count") else key + verdict.shape(small.sql("thalweg")))
            self.after_script(script)
            self.load()
            return
        self.after_script(script)

    def after_script(self, script):
        """What the tables are now, as PostgreSQL says."""
        self.postgresql.ask("ROLLBACK")
        for mode in self.ours.writers():
            self.ours.sessions[mode].ask("ROLLBACK")
        for t in self.tables:
            if t.name in script.tables:
                t.rows = [list(r) for r in self.postgresql.rows_of(t.name).rows]
                for i, c in enumerate(t.columns):
                    counts = collections.Counter(r[i] for r in t.rows if r[i] is not None)
                    c.frequency = max(counts.values(), default=0)
                    c.nullable = c.nullable or any(r[i] is None for r in t.rows)
                self.duckdb.must(f"DELETE FROM {t.name}")
                self.duckdb.fill(t.name, t.rows)

    def play(self, wire, script):
        """The answers of all statements, then the rows of each table that was changed."""
        out = []
        for s in script.statements:
            out.append(wire.ask(s.sql(wire.dialect)))
            if out[-1].kind in ("hang", "crash"):
                return out
        if any(s.sql("postgresql") == "BEGIN" for s in script.statements) and out and script.statements[-1].sql("postgresql") not in ("COMMIT", "ROLLBACK"):
            wire.ask("ROLLBACK")
        out += [wire.rows_of(t) for t in script.tables]
        return out

    def compare_script(self, script, expected, answers, mode):
        for i, (a, b) in enumerate(zip(answers, expected)):
            if b.kind == "hang":
                return None
            statement = script.statements[i] if i < len(script.statements) else None
            total = bool(statement and statement.is_query and statement.total)
            if a.kind == "done" and b.kind == "done" and (a.count is None or b.count is None):
                continue
            found = verdict.judge(a, b, lambda: Answer("error", message="DuckDB is not asked"), mode, total)
            if found:
                return (*found, b, a)
            if b.kind == "error" and a.kind != "error":
                return "accepted", f"{b}", b, a
            if b.kind == "error":
                return None
        if len(answers) < len(expected):
            return "crash", "the script ended early", expected[-1], answers[-1]
        return None

    def reduce_script(self, script, mode, kind, text):
        self.last = None
        # The tables before the script are those of the last load and what scripts have committed since.
        before = self.before
        def fails_with(tables, candidate):
            try:
                self.put(tables, mode)
                expected = self.play(self.postgresql, candidate)
                found = self.compare_script(candidate, expected, self.play(self.ours.sessions[mode], candidate), mode)
            except Lost:
                return False
            finally:
                self.postgresql.ask("ROLLBACK")
                self.ours.sessions[mode].ask("ROLLBACK")
            if found and found[0] == kind:
                self.last = found[2:]
                return True
            return False

        small = script
        tables = before
        if fails_with(tables, small):
            names = script.sql("postgresql")
            used = [t for t in tables if t.name in names]
            if fails_with(used, small):
                tables = used
            small = reduce.reduce_script_statements(small, lambda c: fails_with(tables, c))
            tables = reduce.reduce_rows(tables, lambda t: fails_with(t, small), self.options.reduce_seconds)
            small = reduce.reduce_statement(small, lambda c: fails_with(tables, c), self.options.reduce_seconds)
            tables = reduce.reduce_rows(tables, lambda t: fails_with(t, small), self.options.reduce_seconds / 2)
            fails_with(tables, small)
        return small, tables


def kept(folder, kind, shape):
    """The file of a finding: findings of one shape have one, in later runs too."""
    return pathlib.Path(folder) / f"{kind.replace(' ', '-')}-{hashlib.sha1(shape.encode()).hexdigest()[:10]}.sql"


def work(options, number, folder, queue, seeds, until):
    # The servers are to go with this process, whoever ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    job = Job(options, number, folder, queue)
    try:
        job.run(seeds, until)
    except Exception:
        queue.put(("broken", traceback.format_exc()))
    queue.put(("end", number))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("thalweg", nargs="?", help="the program")
    p.add_argument("--seed", type=int, default=1, help="of the first schema (1)")
    p.add_argument("--queries", type=int, default=20_000, help="how many (20000)")
    p.add_argument("--seconds", type=float, help="for how long, instead of --queries")
    p.add_argument("--modes", default="all", help=f"of ours, with commas between: {', '.join(MODES)} (all)")
    p.add_argument("--per-query", type=int, default=2, metavar="N", help="modes that each query is asked in, picked by chance; 0: all (2)")
    p.add_argument("--both-peers", action="store_true", help="ask DuckDB every query, not only where ours and PostgreSQL differ")
    p.add_argument("--batch", type=int, default=400, help="queries of a schema (400)")
    p.add_argument("--rows", type=int, default=20_000, help="rows of the largest table (20000)")
    p.add_argument("--changes", type=float, default=0.06, help="share of scripts that change tables (0.06)")
    p.add_argument("--oracles", type=float, default=0.08, help="share of TLP and NoREC (0.08)")
    p.add_argument("--timeout", type=float, default=8, help="seconds a peer may take; ours may take four times as long (8)")
    p.add_argument("--jobs", type=int, default=1, help="processes, each with its own servers (1)")
    p.add_argument("--reduce", type=int, default=20, help="differing results that a process reduces at most (20)")
    p.add_argument("--reduce-seconds", type=float, default=40, help="for each of them (40)")
    p.add_argument("--keep", metavar="DIR", help="write each finding into this folder")
    p.add_argument("--allow", default="", help="known faults that are asked all the same, with commas between, or all")
    p.add_argument("--self-check", action="store_true", help="only PostgreSQL and DuckDB: whether the queries have one answer")
    p.add_argument("--only", metavar="SEED/N", help="only the N-th query of a schema")
    p.add_argument("--show", action="store_true", help="print what a peer refuses")
    o = p.parse_args()
    if o.thalweg is None and not o.self_check:
        p.error("name the program, or --self-check")
    o.modes = list(MODES) if o.modes == "all" else o.modes.split(",")
    if unknown := set(o.modes) - set(MODES):
        p.error(f"no mode {', '.join(unknown)}")
    if o.only:
        o.seed, o.queries, o.jobs = int(o.only.split("/")[0]), 1, 1
    known.allow([n for n in o.allow.split(",") if n])
    if o.keep:
        pathlib.Path(o.keep).mkdir(parents=True, exist_ok=True)
    sys.exit(campaign(o))


def campaign(o):
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    began = time.monotonic()
    until = began + o.seconds if o.seconds else float("inf")
    queue = multiprocessing.get_context("fork").Queue()
    total, shapes, code = collections.Counter(), {}, 0
    with postgresql.Server() as server:
        processes = []
        for number in range(o.jobs):
            seeds = range(o.seed + number, o.seed + 10**9, o.jobs)
            process = multiprocessing.get_context("fork").Process(target=work, args=(o, number, server.folder, queue, seeds, until))
            process.start()
            processes.append(process)
        running, shown = len(processes), began
        try:
            while running:
                try:
                    kind, *what = queue.get(timeout=5)
                except Exception:
                    if not any(q.is_alive() for q in processes):
                        break
                    continue
                if kind == "count":
                    total.update(what[0])
                elif kind == "finding":
                    finding, shape = what
                    code = 1
                    shapes.setdefault(shape, []).append(finding)
                    if len(shapes[shape]) == 1:
                        print(f"\n{'=' * 20} finding {len(shapes)}\n{finding.script()}\n", flush=True)
                        if o.keep:
                            kept(o.keep, finding.kind, shape).write_text(finding.script() + "\n")
                elif kind == "broken":
                    code = 2
                    print(what[0], flush=True)
                elif kind == "end":
                    running -= 1
                if time.monotonic() - shown > 30:
                    shown = time.monotonic()
                    rate = total["queries"] / (shown - began)
                    print(f"{total['queries']:,} queries, {rate:.0f} a second, {len(shapes)} findings", flush=True)
        finally:
            for process in processes:
                # Who has said that it is done stops its servers by itself; others are told to.
                if running:
                    process.terminate()
                process.join(30)
    seconds = time.monotonic() - began
    print(f"\n{total['queries']:,} queries in {seconds:.0f} s, {total['queries'] / seconds:.0f} a second, seed {o.seed}; {len(shapes)} findings")
    for name, n in sorted(total.items()):
        print(f"  {name}: {round(n):,}")
    return code


if __name__ == "__main__":
    main()
