"""Many clients at once for a while, some of them bad: does the server stay whole?

    soak.py PID [--seconds 600] [--connections 500] [--active 64]

The server, of process PID, is in PGHOST, PGPORT, … and trusts whoever comes. Most connections are
only held; the active ones look rows up, group, insert, copy and roll back, beside a few that run
heavy queries; and others vanish amid a query, send garbage, stall within a message, or cancel at
random. Prints what it sees every ten seconds, then a table; exits with 1 if anything was lost: a
query that goes on without its client, memory or file handles that grow, a wrong answer, a crash.
"""

import argparse
import asyncio
import os
import pathlib
import random
import struct
import sys
import time

import asyncpg

HOST, PORT = os.environ.get("PGHOST", "127.0.0.1"), int(os.environ.get("PGPORT", "5432"))
ROWS = 1_000_000
HEAVY = "SELECT b.g, count(*), sum(a.v * b.v) FROM soak a JOIN soak b ON a.id = b.id GROUP BY b.g"


class Soak:
    def __init__(self, arguments):
        self.arguments = arguments
        self.ends = 0.0
        self.counts = {}
        self.wrong = []
        self.short_ms = []
        self.samples = []
        # Of look-ups, as the server saw them: waiting for a slot, and in all.
        self.waits = []

    def count(self, what):
        self.counts[what] = self.counts.get(what, 0) + 1

    def running(self):
        return time.monotonic() < self.ends

    async def connect(self):
        return await asyncpg.connect(database="thalweg", ssl=False, timeout=60)

    async def setup(self):
        c = await self.connect()
        await c.execute(
            "CREATE OR REPLACE TABLE soak AS SELECT i AS id, i % 1000 AS g, i % 97 AS v "
            f"FROM generate_series(1, {ROWS}) AS t(i)"
        )
        await c.execute("CREATE OR REPLACE TABLE soak_log (worker int, n int)")
        await c.close()

    async def solo(self):
        """What a look-up takes alone."""
        c = await self.connect()
        times = []
        for _ in range(300):
            times.append(await self.look_up(c))
        await c.close()
        return times[50:]

    async def look_up(self, c):
        wanted = random.randrange(1, ROWS + 1)
        begun = time.perf_counter()
        found = await c.fetchval("SELECT v FROM soak WHERE id = $1", wanted)
        elapsed = (time.perf_counter() - begun) * 1000
        if found != wanted % 97:
            self.wrong.append(f"id {wanted}: {found}")
        return elapsed

    async def hold(self, i):
        """A connection that is there, and now and then asks something."""
        c = await self.connect()
        while self.running():
            await asyncio.sleep(random.uniform(5, 30))
            if await c.fetchval("SELECT $1::int", i) != i:
                self.wrong.append(f"connection {i} got another's answer")
            self.count("pings")
        await c.close()

    async def work(self, i):
        c = await self.connect()
        rng = random.Random(i)
        inserted = 0
        while self.running():
            kind = rng.random()
            try:
                if kind < 0.70:
                    self.short_ms.append((time.monotonic(), await self.look_up(c)))
                    self.count("look-ups")
                elif kind < 0.85:
                    found = await c.fetch("SELECT g, count(*) AS n FROM soak WHERE g < 10 GROUP BY g")
                    if sorted(r["n"] for r in found) != [ROWS // 1000] * 10:
                        self.wrong.append(f"groups: {found}")
                    self.count("groups")
                elif kind < 0.90:
                    tx = c.transaction()
                    await tx.start()
                    await c.execute("INSERT INTO soak_log VALUES ($1, -1)", i)
                    await tx.rollback()
                    self.count("rollbacks")
                elif kind < 0.91:
                    await c.execute("INSERT INTO soak_log VALUES ($1, $2)", i, inserted)
                    inserted += 1
                    self.count("inserts")
                elif kind < 0.95:
                    rows = [r async for r in self.cursor(c)]
                    if len(rows) != 500:
                        self.wrong.append(f"a cursor gave {len(rows)} rows")
                    self.count("cursors")
                else:
                    try:
                        await c.fetch("SELECT nosuch FROM soak")
                    except asyncpg.UndefinedColumnError:
                        self.count("errors as wanted")
            except asyncpg.PostgresError as e:
                self.count(f"refused: {type(e).__name__}")
            await asyncio.sleep(rng.uniform(0, 0.2))
        kept = await c.fetchval("SELECT count(*) FROM soak_log WHERE worker = $1", i)
        if kept != inserted:
            self.wrong.append(f"worker {i} inserted {inserted} rows, and {kept} are there")
        await c.close()

    async def cursor(self, c):
        async with c.transaction():
            async for row in c.cursor("SELECT id FROM soak LIMIT 500", prefetch=100):
                yield row

    async def heavy(self):
        c = await self.connect()
        while self.running():
            found = await c.fetch(HEAVY)
            if len(found) != 1000:
                self.wrong.append(f"a heavy query gave {len(found)} rows")
            self.count("heavy queries")
        await c.close()

    async def cancel(self):
        """A heavy query that is given up after a while, by a cancel request."""
        c = await self.connect()
        while self.running():
            try:
                await c.fetch(HEAVY, timeout=random.uniform(0.01, 0.5))
            except asyncio.TimeoutError:
                self.count("cancelled")
            if await c.fetchval("SELECT 7") != 7:
                self.wrong.append("an answer that was not asked for")
        await c.close()

    async def vanish(self):
        """Goes away amid a query, without a word."""
        while self.running():
            c = await self.connect()
            task = asyncio.ensure_future(c.fetch(HEAVY))
            await asyncio.sleep(random.uniform(0, 0.5))
            c._transport.abort()
            try:
                await task
            except Exception:
                pass
            self.count("vanished")

    async def raw(self, data, stall):
        reader, writer = await asyncio.open_connection(HOST, PORT)
        try:
            writer.write(data)
            await writer.drain()
            if stall:
                await asyncio.sleep(random.uniform(0, 3))
            else:
                await asyncio.wait_for(reader.read(65536), 1)
        except (OSError, asyncio.TimeoutError):
            pass
        writer.close()

    async def garbage(self):
        """Random bytes, at first or after a proper beginning, whole or cut short."""
        body = struct.pack("!I", 196608) + b"user\0thalweg\0\0"
        startup = struct.pack("!I", len(body) + 4) + body
        rng = random.Random(7)
        while self.running():
            kind = rng.randrange(4)
            noise = rng.randbytes(rng.randrange(1, 2000))
            if kind == 0:
                data = noise
            elif kind == 1:
                data = startup + noise
            elif kind == 2:
                data = startup[: rng.randrange(len(startup))]
            else:
                message = bytearray(b"P\0\0\0\x17s\0SELECT $1\0\0\0B\0\0\0\x14\0s\0\0\0\0\x01\0\0\0\x011\0\0S\0\0\0\x04")
                for _ in range(3):
                    message[rng.randrange(len(message))] = rng.randrange(256)
                data = startup + bytes(message)
            await self.raw(data, stall=rng.random() < 0.3)
            self.count("garbage")
            await asyncio.sleep(0.05)

    def rss_mib(self):
        status = pathlib.Path(f"/proc/{self.arguments.pid}/status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) / 1024

    def handles(self):
        """Those of connections: files of tables are kept open, up to a bound."""
        folder = pathlib.Path(f"/proc/{self.arguments.pid}/fd")
        count = 0
        for link in folder.iterdir():
            try:
                count += os.readlink(link).startswith("socket:")
            except OSError:
                pass
        return count

    async def watch(self, begun):
        c = await self.connect()
        while self.running():
            await asyncio.sleep(10)
            recent = sorted(ms for at, ms in self.short_ms if at > time.monotonic() - 10)
            p99 = recent[int(len(recent) * 0.99)] if recent else float("nan")
            queries = await c.fetchval("SELECT count(*) FROM system.queries")
            # Before the heavy ones have pushed them out of the log.
            waits = await c.fetch(
                "SELECT waited_for_slot_us AS slot, wall_us AS wall FROM system.query_log "
                "WHERE query LIKE 'SELECT v FROM soak WHERE id%' AND state = 'done'"
            )
            self.waits += [(row["slot"] / 1000, row["wall"] / 1000) for row in waits]
            self.samples.append((time.monotonic() - begun, self.rss_mib(), self.handles(), p99))
            print(
                f"{self.samples[-1][0]:5.0f} s  {self.rss_mib():6.0f} MiB  {self.handles():5} handles  "
                f"{queries:3} queries  look-ups {len(recent):5}, p99 {p99:6.1f} ms",
                flush=True,
            )
        await c.close()

    async def run(self):
        a = self.arguments
        await self.setup()
        solo = sorted(await self.solo())
        handles = self.handles()
        begun = time.monotonic()
        self.ends = begun + a.seconds
        heavy = 2
        work = [self.work(i) for i in range(a.active - heavy)] + [self.heavy() for _ in range(heavy)]
        bad = [self.cancel(), self.vanish(), self.vanish(), self.garbage(), self.garbage()]
        held = [self.hold(i) for i in range(a.connections - len(work) - len(bad) - 1)]
        await asyncio.gather(*held, *work, *bad, self.watch(begun))
        await asyncio.sleep(3)
        c = await self.connect()
        left = await c.fetchval("SELECT count(*) FROM system.queries WHERE query NOT LIKE '%system.queries%'")
        await c.close()
        await asyncio.sleep(1)
        self.report(solo, left, handles)

    def report(self, solo, left, handles):
        short = sorted(ms for _, ms in self.short_ms)
        at = lambda values, q: values[min(int(len(values) * q), len(values) - 1)]
        print("\n| what | times |\n|---|---:|")
        for what, count in sorted(self.counts.items()):
            print(f"| {what} | {count} |")
        # Warm after a fifth of the time.
        warm = [s for s in self.samples if s[0] > self.arguments.seconds / 5] or self.samples
        early, late = (sum(s[1] for s in part) / len(part) for part in (warm[: len(warm) // 3 or 1], warm[-(len(warm) // 3 or 1) :]))
        print(f"\nlook-ups: p50 {at(short, 0.5):.1f} ms, p99 {at(short, 0.99):.1f} ms; alone p50 {at(solo, 0.5):.1f} ms, p99 {at(solo, 0.99):.1f} ms")
        slot, wall = (sorted(w[i] for w in self.waits) or [float("nan")] for i in (0, 1))
        print(f"in the server: p50 {at(wall, 0.5):.1f} ms, p99 {at(wall, 0.99):.1f} ms; of these waiting for a slot p50 {at(slot, 0.5):.1f} ms, p99 {at(slot, 0.99):.1f} ms")
        print(f"memory once warm: {early:.0f} MiB early, {late:.0f} MiB late; handles: {handles} before, {self.handles()} after")
        print(f"queries left behind: {left}; wrong answers: {len(self.wrong)}")
        for wrong in self.wrong[:10]:
            print(f"  {wrong}")
        whole = not self.wrong and left == 0 and self.handles() <= handles + 8 and late < early * 1.1 + 64
        sys.exit(0 if whole else 1)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("pid", type=int)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--connections", type=int, default=500)
    parser.add_argument("--active", type=int, default=64)
    asyncio.run(Soak(parser.parse_args()).run())
