"""Real clients against a real server: what `make clients` runs.

    python3 dev/clients/check.py THALWEG [--cache FOLDER] [--table] [NAME ...]

Installs the clients that are missing into FOLDER/clients, starts servers of THALWEG (the binary)
with databases of their own, and runs a client's checks after the other's: each of their lines
`ok FEATURE: what` or `FAILED FEATURE: why` is a check. After each client the server must live and run
no statement; at the end SIGTERM must end it. Last comes the table client × feature, which must be
that of docs/clients.md (and the tries of tries.py those of docs/access.md): --table writes them
there. With NAMEs only these clients run, and the pages are not looked at.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile

import install
import pages
from server import Server

HERE = pathlib.Path(__file__).parent
DOCS = HERE.parent.parent / "docs"


class Client:
    """`command` makes its words of the cache; `programs` have to be there."""

    def __init__(self, name, command, programs=(), seconds=300):
        self.name, self.command, self.programs, self.seconds = name, command, programs, seconds


def python(script):
    return lambda cache: [install.python(cache), HERE / script]


def with_node(cache):
    os.environ["NODE_MODULES"] = str(install.node(cache))
    return ["node", HERE / "with_node.mjs"]


def with_jdbc(cache):
    return [HERE / "jdbc" / "run.sh", install.jdbc(cache)]


def with_sqllogictest(cache):
    return [sys.executable, HERE / "with_sqllogictest.py", install.sqllogictest(cache)]


PSQL = Client("psql", python("with_psql.py"))
CLIENTS = [
    PSQL,
    Client("bytes", python("with_bytes.py")),
    Client("pgbench", python("with_pgbench.py"), ["pgbench"]),
    Client("psycopg", python("with_psycopg.py")),
    Client("asyncpg", python("with_asyncpg.py")),
    Client("SQLAlchemy", python("sqlalchemy_reflection.py")),
    Client("pandas", python("with_pandas.py"), seconds=600),
    Client("node-postgres", with_node, ["node", "npm"]),
    Client("pgJDBC", with_jdbc, ["javac", "mvn"]),
    Client("sqllogictest", with_sqllogictest),
]
# They fail to log in, after which the server makes their address wait: each has one of its own.
STRANGERS = [
    Client("ADBC", python("flight.py"), seconds=600),
    Client("TLS", python("with_tls.py")),
    Client("tries", python("tries.py")),
]
# They are no clients that anybody has: the table leaves them out.
UNLISTED = ("bytes", "tries")
# So that nobody has to be waited for.
STRANGERS_FLAGS = ["--handshake-timeout", "2s"]


class Run:
    """What has been found so far."""

    def __init__(self, binary, cache):
        self.binary, self.cache = binary, cache
        self.passed = self.failed = 0
        # By client and feature: whether all was as it should be.
        self.features = {}

    def note(self, client, passed, feature, text=""):
        if passed:
            self.passed += 1
        else:
            self.failed += 1
        text = f"{feature}: {text}" if text else feature
        print(f"{'ok' if passed else 'FAILED'} {client}: {text}", flush=True)

    def client(self, client, server):
        """Runs one, and notes its lines."""
        words = client.command(self.cache)
        environment = os.environ | server.environment()
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
            try:
                output, _ = process.communicate(timeout=client.seconds)
                ended = None if process.returncode == 0 else f"exit code {process.returncode}"
            except subprocess.TimeoutExpired:
                process.kill()
                output, _ = process.communicate()
                ended = f"not done after {client.seconds} s"
            errors.seek(0)
            errors = errors.read().strip()
        failed, seen = self.failed, self.passed
        for line in output.splitlines():
            word, _, rest = line.partition(" ")
            if word in ("ok", "FAILED"):
                self.line(client.name, word == "ok", rest)
        if ended and self.failed == failed:
            self.note(client.name, False, ended, errors.splitlines()[-1] if errors else "")
        elif self.passed == seen and self.failed == failed:
            self.note(client.name, False, "it checked nothing")
        if self.failed > failed and errors:
            print(errors, flush=True)
        trouble = server.trouble()
        self.note(client.name, trouble is None, "leaves nothing behind", trouble or "")

    def line(self, client, passed, rest):
        """`FEATURE`, `FEATURE: text` or, of other clients as well, `CLIENT/FEATURE: text`."""
        feature, _, text = rest.partition(": ")
        if "/" in feature and client == "TLS":
            client, feature = feature.split("/", 1)
        self.note(client, passed, feature, text)
        if client not in UNLISTED:
            cells = self.features.setdefault(client, {})
            cells[feature] = cells.get(feature, True) and passed

    def server(self, name, clients, *flags, trust=False):
        if not clients:
            return
        with Server(self.binary, *flags, trust=trust) as server:
            for client in clients:
                self.client(client, server)
        self.note(name, server.ended is None, "SIGTERM ends the server", server.ended or "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary", type=pathlib.Path)
    parser.add_argument("--cache", type=pathlib.Path, default=HERE.parent.parent / ".cache")
    parser.add_argument("--table", action="store_true", help="write the tables into the pages")
    parser.add_argument("names", nargs="*", help=", ".join(c.name for c in CLIENTS + STRANGERS) + ", trust")
    options = parser.parse_intermixed_args()
    known = [c.name for c in CLIENTS + STRANGERS] + ["trust"]
    unknown = [name for name in options.names if name not in known]
    if unknown:
        sys.exit(f"no such client: {', '.join(unknown)}; there are {', '.join(known)}")
    wanted = lambda clients: [c for c in clients if not options.names or c.name in options.names]
    programs = {"psql", "openssl"}
    for client in wanted(CLIENTS + STRANGERS):
        programs.update(client.programs)
    install.programs(sorted(programs))

    run = Run(options.binary.absolute(), options.cache.absolute() / "clients")
    with tempfile.TemporaryDirectory(prefix="thalweg-clients-") as folder:
        os.environ["TMPDIR"] = folder
        tries = pathlib.Path(folder, "tries.md")
        os.environ["THALWEG_TRIES"] = str(tries)
        run.server("the server", wanted(CLIENTS))
        for client in wanted(STRANGERS):
            run.server(f"the server of {client.name}", [client], *STRANGERS_FLAGS)
        if not options.names or "trust" in options.names:
            # As it is without a word more: any name, no password.
            trusting = Client("trust", PSQL.command)
            run.server("the server that trusts", [trusting], trust=True)
            run.features.pop("trust", None)
        table = pages.features(run.features)
        print(f"\n{table}")
        if not options.names:
            found = {
                DOCS / "clients.md": table,
                DOCS / "access.md": tries.read_text() if tries.exists() else "",
            }
            for page, text in found.items():
                if options.table:
                    pages.write(page, text)
                is_same = pages.read(page) == text
                why = "" if is_same else "its table is not what was found: check.py --table writes it"
                run.note("docs", is_same, page.name, why)
    print(f"\n{run.passed} passed, {run.failed} failed")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
