"""Files at addresses, from servers that are started for it.

    python dev/web/check.py THALWEG [S3S-FS]

THALWEG is the binary. A server of Python's gives each file in several ways: with ranges, without them, by
redirects, through a proxy, with TLS, and with failures that pass or stay. S3S-FS is a server of S3 (dev/s3).
"""

import bz2
import concurrent.futures
import csv
import gzip
import http.server
import io
import json
import lzma
import os
import pathlib
import signal
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import zipfile

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as parquet

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "clients"))
sys.path.insert(0, str(HERE.parent / "s3"))

import install
from check import KEYS, Server
from checks import check, equal, main

BINARY = str(pathlib.Path(sys.argv[1]).absolute())
ROWS = 60_000
# How long a server may say nothing (base::limits).
SILENCE = 30


class Handler(http.server.BaseHTTPRequestHandler):
    """`/WAY/name` gives the file called so."""

    protocol_version = "HTTP/1.1"
    files = {}
    # Method, way, name and range of each request.
    asked = []
    failures = {}
    # Set at the end: who stands still goes on.
    over = threading.Event()

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Transfer_Encoding" not in headers and "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self):
        path, _, query = self.path.partition("?")
        _, way, name = path.split("/", 2)
        wanted = self.headers.get("Range")
        Handler.asked.append((self.command, way, name, wanted))
        body = Handler.files.get(name)
        if way == "moved":
            return self.answer(302, Location=f"/ranges/{name}")
        if way == "loop":
            return self.answer(302, Location=self.path)
        if way == "status":
            return self.answer(int(name))
        if body is None or way == "signed" and query != "token=right":
            return self.answer(404 if body is None else 403)
        if way == "nohead" and self.command == "HEAD":
            return self.answer(405)
        if way == "busy":
            left = Handler.failures.setdefault(name, 2)
            Handler.failures[name] = left - 1
            if left > 0:
                return self.answer(503)
        if way == "short" and self.command != "HEAD":
            self.close_connection = True
            return self.answer(200, body[: len(body) // 2], Content_Length=str(len(body)))
        if way == "torn" and wanted is None and self.command != "HEAD":
            self.close_connection = True
            return self.answer(200, body[: len(body) // 2], Content_Length=str(len(body)), ETag='"1"')
        if way == "mute":
            Handler.over.wait()
            return None
        if way == "stuck" and self.command != "HEAD":
            self.answer(200, body[: len(body) // 2], Content_Length=str(len(body)), ETag='"1"')
            self.wfile.flush()
            Handler.over.wait()
            self.close_connection = True
            return None
        if way in ("pieces", "cut") and self.command == "HEAD":
            return self.answer(200, Transfer_Encoding="chunked")
        if way in ("pieces", "cut"):
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            pieces = [body[i : i + 100_000] for i in range(0, len(body), 100_000)]
            for piece in pieces if way == "pieces" else pieces[:1]:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if way == "pieces":
                self.wfile.write(b"0\r\n\r\n")
            else:
                self.close_connection = True
            return None
        if way == "changing":
            return self.answer(200, body, ETag=f'"{len(Handler.asked)}"')
        if way == "whole" or wanted is None:
            return self.answer(200, body, ETag='"1"')
        start, _, end = wanted.removeprefix("bytes=").partition("-")
        start, end = int(start), min(int(end) if end else len(body) - 1, len(body) - 1)
        return self.answer(206, body[start : end + 1], ETag='"1"', Content_Range=f"bytes {start}-{end}/{len(body)}")


class Proxy(http.server.BaseHTTPRequestHandler):
    """Answers for every host; it keeps which one was asked for."""

    asked = []

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        Proxy.asked.append(self.path)
        body = Handler.files["a.csv"]
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD


class Quiet(http.server.ThreadingHTTPServer):
    """Clients go away when they have enough: no news."""

    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_):
        pass


def serve(handler, context=None):
    server = Quiet(("127.0.0.1", 0), handler)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_port


def run(script, **environment):
    done = subprocess.run(
        [BINARY, "sql", ":memory:", "--format", "csv"],
        input=script, capture_output=True, text=True, timeout=300, env={**os.environ, **environment},
    )
    return done.returncode, list(csv.reader(io.StringIO(done.stdout))), done.stderr


def rows(script, **environment):
    code, found, errors = run(script, **environment)
    if code != 0:
        raise AssertionError(errors)
    return found[1:]


def refused(script, *parts, **environment):
    code, found, errors = run(script, **environment)
    missing = [part for part in parts if part not in errors]
    if code == 0 or missing or "panicked" in errors:
        raise AssertionError(f"exit code {code}, {errors!r} lacks {missing}, rows {found}")


def make():
    table = pa.table({"id": range(ROWS), "name": [f"row {i}" for i in range(ROWS)], "v": [i / 2 for i in range(ROWS)]})
    lines = "id,name,v\n" + "".join(f"{i},row {i},{i / 2}\n" for i in range(ROWS))
    packed = io.BytesIO()
    parquet.write_table(table, packed, row_group_size=10_000)
    arrow = io.BytesIO()
    feather.write_feather(table, arrow, compression="uncompressed")
    records = "".join(json.dumps({"id": i, "name": f"row {i}", "v": i / 2}) + "\n" for i in range(ROWS))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as archived:
        archived.writestr("a.csv", lines)
    Handler.files = {
        "a.csv": lines.encode(), "a.csv.gz": gzip.compress(lines.encode()), "a.csv.bz2": bz2.compress(lines.encode()),
        "a.csv.xz": lzma.compress(lines.encode(), preset=1), "a.csv.zip": archive.getvalue(),
        "a.csv.zst": pa.compress(lines.encode(), codec="zstd", asbytes=True),
        "book.xlsx": pathlib.Path(HERE.parent, "sqltest", "data", "book.xlsx").read_bytes(),
        "page.csv": b"<!DOCTYPE html><html><body>Log in</body></html>",
        "a.jsonl": records.encode(), "a.parquet": packed.getvalue(), "a.arrow": arrow.getvalue(), "empty.csv": b"",
    }


EXPECTED = [[str(ROWS), str(ROWS * (ROWS - 1) // 2), "row 9"]]
ASKED = "SELECT count(*), sum(id), min(name) FILTER (WHERE id = 9) FROM "
ALL = ["a.csv", "a.csv.gz", "a.csv.bz2", "a.csv.xz", "a.csv.zst", "a.csv.zip", "a.jsonl", "a.parquet", "a.arrow"]


@check("every format, with and without ranges, redirected, without a length, and when the connection breaks")
def formats():
    Handler.failures.clear()
    for way in ("ranges", "whole", "moved", "nohead", "busy", "pieces", "torn"):
        names = ALL if way in ("ranges", "whole", "pieces") else ["a.csv", "a.csv.gz", "a.jsonl", "a.parquet", "a.arrow"]
        found = rows("; ".join(f"{ASKED} '{BASE}/{way}/{name}'" for name in names))
        found = [row for row in found if row[0].isdigit()]
        equal((way, dict(zip(names, found))), (way, dict.fromkeys(names, EXPECTED[0])))


@check("of Parquet, only what is asked for")
def ranges():
    Handler.asked.clear()
    equal(rows(f"SELECT max(v) FROM '{BASE}/ranges/a.parquet'"), [[str((ROWS - 1) / 2)]])
    equal(all(wanted for method, _, _, wanted in Handler.asked if method == "GET"), True)
    whole, size = len(Handler.files["a.parquet"]), 0
    for _, _, _, wanted in Handler.asked:
        if wanted:
            start, _, end = wanted.removeprefix("bytes=").partition("-")
            size += (int(end) if end else whole - 1) - int(start) + 1
    equal(size < whole / 2, True)


@check("every place that takes a path")
def places():
    url = f"{BASE}/ranges/a.csv"
    equal(rows(f"{ASKED} read_csv('{url}', header = true, types = {{'id': 'BIGINT'}})"), EXPECTED)
    equal(rows(f"SELECT count(*) FROM read_csv(['{url}', '{BASE}/whole/a.csv.gz'])"), [[str(2 * ROWS)]])
    equal(rows(f"SELECT count(*) FROM read_parquet('{BASE}/ranges/a.parquet')"), [[str(ROWS)]])
    equal(rows(f"SELECT count(*) FROM read_json('{BASE}/ranges/a.jsonl')"), [[str(ROWS)]])
    equal(rows(f"SELECT count(*) FROM read_arrow('{BASE}/ranges/a.arrow')"), [[str(ROWS)]])
    for way in ("ranges", "pieces"):
        equal(rows(f"SELECT sum(n), count(*) FROM '{BASE}/{way}/book.xlsx'"), [["7", "4"]])
    equal(rows(f"SELECT count(*), count(DISTINCT f) FROM read_csv('{BASE}/ranges/a.csv', filename = 'f')"), [[str(ROWS), "1"]])
    equal(rows(f"CREATE VIEW v AS SELECT * FROM '{url}'; {ASKED} v"), EXPECTED)
    equal(rows(f"CREATE TABLE t AS SELECT * FROM '{url}'; {ASKED} t"), EXPECTED)
    equal(rows(f"CREATE TABLE t (id bigint, name text, v double); COPY t FROM '{url}'; {ASKED} t"), EXPECTED)
    equal(rows(f"CREATE TABLE t (id bigint, name text, v double); COPY t FROM '{BASE}/ranges/a.parquet' (FORMAT parquet); {ASKED} t"), EXPECTED)
    for kind, name in (("CSV", "a.csv"), ("PARQUET", "a.parquet"), ("JSON", "a.jsonl")):
        equal((kind, rows(f"CREATE EXTERNAL TABLE t STORED AS {kind} LOCATION '{BASE}/ranges/{name}'; {ASKED} t")), (kind, EXPECTED))
    equal(rows(f"SELECT * FROM '{url}' LIMIT 2"), [["0", "row 0", "0.0"], ["1", "row 1", "0.5"]])
    equal([row[:2] for row in rows(f"DESCRIBE '{url}'")], [["id", "bigint"], ["name", "varchar"], ["v", "double"]])
    equal(rows(f"SELECT count(*) FROM '{BASE}/signed/a.csv?token=right'"), [[str(ROWS)]])
    with tempfile.TemporaryDirectory() as folder:
        for name in ALL:
            code, said = load(pathlib.Path(folder, "db"), name.replace(".", "_"), f"{BASE}/ranges/{name}")
            equal((name, code, said), (name, 0, said))
        code, said = load(pathlib.Path(folder, "db"), "a_csv", f"{BASE}/ranges/a.csv", "--resume")
        equal((code, "skipped" in said or "0 rows" in said), (0, True))
        code, said = load(pathlib.Path(folder, "no"), "t", f"{BASE}/ranges/nothing.csv")
        equal((code == 0, "404 Not Found" in said), (False, True))


def load(*args):
    done = subprocess.run([BINARY, "load", *map(str, args)], capture_output=True, text=True, timeout=300)
    return done.returncode, done.stdout + done.stderr


@check("errors name the address, the status and a way out")
def errors():
    refused(f"SELECT * FROM '{BASE}/ranges/nothing.csv'", f"{BASE}/ranges/nothing.csv", "404 Not Found", "check the address")
    refused(f"SELECT * FROM '{BASE}/ranges/nothing.parquet'", "404 Not Found")
    refused(f"SELECT * FROM '{BASE}/status/500'", "500 Internal Server Error", "try again later")
    refused(f"SELECT * FROM '{BASE}/loop/a.csv'", f"{BASE}/loop/a.csv", "redirect")
    refused(f"SELECT * FROM '{BASE}/short/a.csv'", f"{BASE}/short/a.csv", "cut short")
    for name in ("a.parquet", "a.arrow", "a.csv.gz", "a.csv.zip"):
        refused(f"SELECT * FROM '{BASE}/short/{name}'", f"{BASE}/short/{name}", "cut short: the server")
    refused(f"SELECT * FROM '{BASE}/cut/a.csv'", f"{BASE}/cut/a.csv", "cut short")
    refused(f"SELECT * FROM '{BASE}/ranges/page.csv'", f"{BASE}/ranges/page.csv", "web page")
    refused("SELECT * FROM 'http://nosuch.invalid/a.csv'", "http://nosuch.invalid/a.csv", "check the address")
    refused(f"SELECT * FROM '{BASE}/ranges/empty.csv'", "is empty")
    refused(f"SELECT * FROM '{BASE}/changing/a.csv'", "was changed")
    refused("SELECT * FROM 'http://127.0.0.1:1/a.csv'", "http://127.0.0.1:1/a.csv", "check the address")
    refused(f"SELECT * FROM '{BASE}/ranges/*.csv'", "names no single file")
    refused("SELECT * FROM 'ftp://host/a.csv'", "cannot read", "http://, https:// and s3://")
    refused(f"COPY (SELECT 1) TO '{BASE}/a.csv'", f"{BASE}/a.csv", "not written at addresses")
    refused("COPY (SELECT 1) TO 's3://bucket/a.csv'", "s3://bucket/a.csv", "not written at addresses")
    refused("SELECT * FROM 's3://'", "names no bucket")
    # What is secret is not shown.
    code, _, said = run(f"SELECT * FROM '{BASE}/signed/a.csv?token=s3cret'")
    equal((code != 0, "403 Forbidden" in said, "s3cret" in said.split("LINE")[0]), (True, True, False))
    code, _, said = run(f"SELECT * FROM '{BASE.replace('//', '//me:s3cret@')}/ranges/a.csv'")
    equal((code != 0, "s3cret" in said.split("LINE")[0]), (True, False))


@check("TLS: of a server that nobody vouches for, and of one that somebody does")
def tls():
    install.programs(["openssl"])
    with tempfile.TemporaryDirectory() as folder:
        certificate, key = pathlib.Path(folder, "c.pem"), pathlib.Path(folder, "k.pem")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
             "-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost",
             "-addext", "basicConstraints=critical,CA:FALSE",
             "-keyout", key, "-out", certificate],
            check=True, capture_output=True,
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        url = f"https://localhost:{serve(Handler, context)}/ranges/a.csv"
        refused(f"SELECT * FROM '{url}'", url, "certificate", "SSL_CERT_FILE")
        equal(rows(f"{ASKED} '{url}'", SSL_CERT_FILE=str(certificate)), EXPECTED)


@check("proxies, as the environment names them")
def proxies():
    proxy = f"http://127.0.0.1:{serve(Proxy)}"
    equal(rows(f"{ASKED} 'http://somewhere.invalid/a.csv'", http_proxy=proxy), EXPECTED)
    equal(set(Proxy.asked), {"http://somewhere.invalid/a.csv"})


def begin_standing(pool, folder):
    """Begins what waits for servers that say nothing, which takes as long as all the rest."""

    def silent(url):
        start = time.monotonic()
        refused(f"SELECT * FROM '{url}'", url, f"said nothing for {SILENCE} s")
        equal(time.monotonic() - start < SILENCE + 10, True)

    def timed(url):
        start = time.monotonic()
        refused(f"SET statement_timeout = '1s'; SELECT * FROM '{url}'", "statement_timeout")
        equal(time.monotonic() - start < 10, True)

    def interrupted(args, script):
        start = time.monotonic()
        running = subprocess.Popen([BINARY, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        running.stdin.write(script)
        running.stdin.close()
        time.sleep(3)
        running.send_signal(signal.SIGINT)
        code = running.wait(timeout=300)
        equal((args[0], code, time.monotonic() - start < 13), (args[0], 130, True))

    urls = [f"{BASE}/mute/a.csv", f"{BASE}/mute/a.parquet", f"{BASE}/stuck/a.csv", f"{BASE}/stuck/a.arrow"]
    tries = [pool.submit(silent, url) for url in urls] + [pool.submit(timed, url) for url in urls]
    tries += [pool.submit(interrupted, ["sql", ":memory:"], f"SELECT * FROM '{url}'") for url in urls[::2]]
    tries += [pool.submit(interrupted, ["load", f"{folder}/{i}", "t", url], "") for i, url in enumerate(urls[::2])]
    return tries


@check("objects of S3")
def s3():
    if len(sys.argv) < 3:
        return
    with tempfile.TemporaryDirectory() as folder:
        bucket = pathlib.Path(folder, "bucket")
        for day in (1, 2):
            pathlib.Path(bucket, f"day={day}").mkdir(parents=True)
            pathlib.Path(bucket, f"day={day}", "b.csv").write_text(f"id\n{day}\n")
        for name in ALL:
            pathlib.Path(bucket, name).write_bytes(Handler.files[name])
        server = Server(sys.argv[2], folder)
        server.start()
        us = {**KEYS, "AWS_REGION": "us-east-1", "AWS_ENDPOINT": f"http://127.0.0.1:{server.port}"}
        try:
            found = rows("; ".join(f"{ASKED} 's3://bucket/{name}'" for name in ALL), **us)
            equal([row for row in found if row[0].isdigit()], EXPECTED * len(ALL))
            equal(rows("SELECT * FROM 's3://bucket/*/b.csv' ORDER BY id", **us), [["1", "1"], ["2", "2"]])
            equal(rows("SELECT count(*) FROM 's3://bucket/day=2/'", **us), [["1"]])
            equal(rows("SELECT sum(id) FROM read_csv('s3://bucket/**/b.csv', filename = true) WHERE filename LIKE '%=2%'", **us), [["2"]])
            equal(rows("CREATE TABLE t (id bigint); COPY t FROM 's3://bucket/day=1/b.csv'; SELECT * FROM t", **us), [["1"]])
            refused("SELECT * FROM 's3://bucket/nothing.csv'", "s3://bucket/nothing.csv", **us)
            refused("SELECT * FROM 's3://bucket/nothing*.csv'", "no file matches", **us)
            refused("SELECT * FROM 's3://other/a.csv'", "s3://other/a.csv", **us)
            refused("SELECT * FROM 's3://bucket/a.csv'", "s3://bucket/a.csv", "AWS_SECRET_ACCESS_KEY", **{**us, "AWS_SECRET_ACCESS_KEY": "x"})
        finally:
            server.kill()


@check("who may")
def rights():
    refused(f"CREATE ROLE ann; SET ROLE ann; SELECT * FROM '{BASE}/ranges/a.csv'", "permission denied to read files of the server")


@check("no server keeps a statement")
def standing():
    for one in STANDING:
        one.result()


if __name__ == "__main__":
    make()
    for name in [name for name in os.environ if name.startswith("AWS_") or name.lower().endswith("_proxy")]:
        del os.environ[name]
    BASE = f"http://127.0.0.1:{serve(Handler)}"
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(16) as threads:
        STANDING = begin_standing(threads, scratch)
        try:
            main()
        finally:
            Handler.over.set()
