"""pgbench with scripts of its own, in each of its modes. The server is in PGHOST, PGPORT, …"""

import pathlib
import re
import subprocess
import tempfile

from checks import check, equal, main

FOLDER = pathlib.Path(tempfile.mkdtemp(prefix="thalweg-pgbench-"))


def psql(sql):
    done = subprocess.run(["psql", "-X", "-At", "-c", sql], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def pgbench(script, mode, clients=4, transactions=25):
    path = FOLDER / "script.sql"
    path.write_text(script)
    done = subprocess.run(
        ["pgbench", "-n", "-M", mode, "-c", str(clients), "-t", str(transactions), "-f", path, "thalweg"],
        capture_output=True, text=True, timeout=300,
    )
    processed = re.search(r"actually processed: (\d+)/(\d+)", done.stdout)
    if done.returncode != 0 or not processed:
        raise AssertionError(done.stderr + done.stdout)
    equal(processed.group(1), processed.group(2))


LOOK_UP = """\\set id random(1, 1000)
SELECT abalance FROM bench WHERE aid = :id;
"""


@check("queries")
def queries():
    psql("CREATE TABLE bench AS SELECT CAST(i AS int) AS aid, 0 AS abalance FROM generate_series(1, 1000) AS t(i)")
    pgbench(LOOK_UP, "simple")


@check("parameters")
def extended():
    pgbench(LOOK_UP, "extended")


@check("prepared")
def prepared():
    pgbench(LOOK_UP, "prepared")


@check("transactions")
def transactions():
    """Each client adds rows of its own: no two of them conflict."""
    script = """\\set id random(1, 1000)
BEGIN;
INSERT INTO bench_log VALUES (:client_id, :id);
SELECT count(*) FROM bench_log WHERE client = :client_id;
END;
"""
    psql("CREATE TABLE bench_log (client int, id int)")
    pgbench(script, "prepared", transactions=5)
    equal(psql("SELECT count(*) FROM bench_log"), "20")


if __name__ == "__main__":
    main()
