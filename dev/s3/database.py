"""A database in S3 from end to end, through the command line; run by check.py.

Usage: python dev/s3/check.py S3S-FS python dev/s3/database.py THALWEG
"""

import os
import pathlib
import random
import socket
import subprocess
import sys
import tempfile
import time

ROWS = 200_000
SHOP = "s3://bucket/shop"


class Proxy:
    """Takes the commands of proxy.py."""

    def __init__(self):
        host, port = os.environ["THALWEG_S3_CONTROL"].split(":")
        self.stream = socket.create_connection((host, int(port))).makefile("rw")

    def tell(self, command):
        self.stream.write(command + "\n")
        self.stream.flush()
        return int(self.stream.readline())


def run(*arguments, exit_code=0, **environment):
    """Runs the binary; returns what it printed (its errors, if it is to fail)."""
    done = subprocess.run(
        [THALWEG, *map(str, arguments)], capture_output=True, text=True, env={**os.environ, **environment}
    )
    assert done.returncode == exit_code, f"{arguments} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stderr if exit_code else done.stdout


def ask(sql, database=SHOP, **environment):
    """The single row that a query answers with."""
    lines = run("sql", database, "-c", sql, "--format", "csv", **environment).splitlines()
    assert len(lines) == 2, lines
    return lines[1]


def loads_and_answers(folder):
    csv = folder / "orders.csv"
    with csv.open("w") as out:
        out.write("id,price,name\n")
        out.writelines(f"{i},{i % 1000},name {i % 7}\n" for i in range(ROWS))
    run("load", SHOP, "orders", csv)
    expected = f"{ROWS},{sum(i % 1000 for i in range(ROWS))}"
    question = "select count(*), sum(price) from orders"
    assert ask(question) == expected
    assert ask("select count(*) from orders where id >= 199990") == "10"
    return question, expected


def reads_once(proxy, question, expected):
    before = proxy.tell("requests")
    assert ask(question) == expected
    warm = proxy.tell("requests") - before
    before = proxy.tell("requests")
    assert ask(question, XDG_CACHE_HOME=tempfile.mkdtemp()) == expected
    cold = proxy.tell("requests") - before
    assert warm < cold, f"{warm} requests with a warm cache, {cold} with a cold one"


def survives_bad_weather(proxy, question, expected):
    for weather in ["refuse 503 3", "refuse 500 2", "cut 3", "lose 3", "slow 50"]:
        proxy.tell(weather)
        with tempfile.TemporaryDirectory() as cold:
            assert ask(question, XDG_CACHE_HOME=cold) == expected, weather
        run("sql", SHOP, "-c", "create or replace table t as select 1 as a")
        proxy.tell("pass")
        assert ask("select count(*) from t") == "1", weather


def many_write_at_once():
    run("sql", SHOP, "-c", "create table events (writer int, n int)")
    insert = "insert into events values ({}, {})"
    writers = [
        subprocess.Popen(
            ["sh", "-e", "-c", "".join(f'"$0" sql {SHOP} -c "{insert.format(w, n)}"; ' for n in range(5)), THALWEG],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for w in range(4)
    ]
    for writer in writers:
        errors = writer.communicate()[1]
        assert writer.returncode == 0, errors
    assert ask("select count(*), count(distinct writer * 100 + n) from events") == "20,20"


def a_killed_load_leaves_nothing(folder, question, expected):
    command = [THALWEG, "load", SHOP, "orders", folder / "orders.csv"]
    for delay in [0.05, 0.1, 0.2, 0.4]:
        loading = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(delay + random.random() / 20)
        loading.kill()
        loading.wait()
        count, total = map(int, ask(question).split(","))
        # It may have committed before it was killed.
        assert count % ROWS == 0 and total * ROWS == count * int(expected.split(",")[1]), (count, total)


def damage_is_found(folder, question):
    expected = ask(question)
    blocks = sorted(p for p in (folder / "cache").rglob("*") if p.is_file())
    assert blocks, "something is cached"
    for block in blocks:
        flip(block)
    assert ask(question) == expected, "what is damaged in the cache is read again"
    objects = sorted((pathlib.Path(os.environ["THALWEG_S3_FOLDER"]) / "bucket/shop/extents").iterdir())
    for path in objects:
        flip(path)
    error = run("sql", SHOP, "-c", question, exit_code=4, XDG_CACHE_HOME=tempfile.mkdtemp())
    assert SHOP in error, error


def flip(path):
    content = bytearray(path.read_bytes())
    for at in range(0, len(content), 97):
        content[at] ^= 0x10
    path.write_bytes(content)


def mistakes_are_explained():
    for variables, database, hint in [
        ({"AWS_SECRET_ACCESS_KEY": "wrong"}, SHOP, "AWS_SECRET_ACCESS_KEY"),
        ({}, "s3://absent/shop", "create the bucket"),
    ]:
        error = run("sql", database, "-c", "select 1", exit_code=3, **variables)
        assert hint in error and database in error, error
    error = run("sql", "s3://bucket/nothing", "-c", "select 1", exit_code=1)
    assert "s3://bucket/nothing" in error, error


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        proxy = Proxy()
        question, expected = loads_and_answers(folder)
        print("ok: load and ask", flush=True)
        for check, arguments in [
            (reads_once, (proxy, question, expected)),
            (survives_bad_weather, (proxy, question, expected)),
            (many_write_at_once, ()),
            (a_killed_load_leaves_nothing, (folder, question, expected)),
            (mistakes_are_explained, ()),
            (damage_is_found, (folder, question)),
        ]:
            check(*arguments)
            print("ok:", check.__name__.replace("_", " "), flush=True)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    THALWEG = os.path.abspath(sys.argv[1])
    main()
