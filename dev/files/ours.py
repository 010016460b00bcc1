"""How Thalweg reads files: by FROM, through servers with 1, 2 and 8 threads, and by `thalweg load`.

A server is started once for each number of threads and asked for all files over Arrow Flight SQL, so
that a reading costs no process, and answers keep their types. Loads go through the command line, many
files in one manifest; where one of them is refused, the others are loaded without it.
"""

import json
import pathlib
import signal
import socket
import subprocess
import time

import pyarrow as pa
import pyarrow.flight as flight

from compare import with_intervals

THREADS = (1, 2, 8)
# What a debug build on a busy machine may take to start.
START_SECONDS = 120
# Files that one process of `thalweg load` takes at most.
MANIFEST_FILES = 12


class Refused(Exception):
    """The error of a reading. `kind` is "error", "panic", "crash" or "hang"."""

    def __init__(self, kind, message):
        super().__init__(" ".join(message.split()))
        self.kind = kind


def field(number, data):
    """A field of a protocol buffer that holds bytes."""
    length, size = b"", len(data)
    while size > 127:
        length += bytes([size & 127 | 128])
        size >>= 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + data


def command(sql):
    """CommandStatementQuery of Arrow Flight SQL, in the Any that carries it."""
    name = b"type.googleapis.com/arrow.flight.protocol.sql.CommandStatementQuery"
    return flight.FlightDescriptor.for_command(field(1, name) + field(2, field(1, sql.encode())))


def quoted(text):
    return "'" + str(text).replace("'", "''") + "'"


def panic(text):
    """The first line that tells of a panic, or None."""
    lines = text.splitlines()
    for i, line in enumerate(lines):
        if "panicked at" in line:
            # Which thread it was differs from reading to reading.
            return " ".join([line[line.index("panicked at") :], *lines[i + 1 : i + 2]])
    return None


class Server:
    """`thalweg serve` with a number of threads, started again when a file has ended it."""

    def __init__(self, binary, database, folder, name, threads):
        self.arguments = [binary, "serve", database, "--threads", str(threads), "--pg", "off", "--http", "off",
                          "--audit", "none", "--log-level", "warn", "--drain-timeout", "1s"]
        self.log = pathlib.Path(folder, f"{name}.log")
        self.process = None
        self.start()

    def start(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([*self.arguments, "--flight", f"127.0.0.1:{self.port}"], stdout=log, stderr=log)

    def until_ready(self):
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until and self.process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                break
            except OSError:
                time.sleep(0.05)
        else:
            raise SystemExit(f"{' '.join(map(str, self.arguments))} does not start:\n{self.log.read_text()[-2000:]}")
        self.client = flight.FlightClient(f"grpc://127.0.0.1:{self.port}")
        self.read = self.log.stat().st_size

    def ask(self, sql, seconds):
        """The rows of a query as a table of Arrow."""
        try:
            options = flight.FlightCallOptions(timeout=seconds)
            info = self.client.get_flight_info(command(sql), options)
            table = self.client.do_get(info.endpoints[0].ticket, options).read_all()
        except (pa.ArrowException, OSError) as e:
            if found := self.panic():
                self.again_if_ended()
                raise Refused("panic", found) from None
            if isinstance(e, flight.FlightTimedOutError):
                self.again()
                raise Refused("hang", f"no answer within {seconds} s") from None
            if self.process.poll() is not None:
                code = self.process.returncode
                self.again()
                raise Refused("crash", f"the server has ended with {code}") from None
            raise Refused("error", message(str(e))) from None
        if found := self.panic():
            raise Refused("panic", found)
        return with_intervals(table)

    def panic(self):
        """What the log tells of a panic since the last look."""
        with open(self.log, "rb") as log:
            log.seek(self.read)
            text = log.read()
        self.read += len(text)
        return panic(text.decode(errors="replace"))

    def again_if_ended(self):
        if self.process.poll() is not None:
            self.again()

    def again(self):
        self.stop()
        self.start()
        self.until_ready()

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


def message(text):
    """What the server said, without what gRPC adds to it."""
    for mark in (" sqlstate: ", ". gRPC client debug context", ". Client context:"):
        text = text.partition(mark)[0]
    return text.partition("error, with message: ")[2] or text


class Ours:
    """All the ways in which Thalweg reads a file."""

    def __init__(self, binary, folder, seconds):
        self.binary, self.folder, self.seconds = str(pathlib.Path(binary).resolve()), pathlib.Path(folder), seconds
        self.database = str(self.folder / "loaded.db")
        self.servers = [Server(self.binary, ":memory:", folder, f"threads-{n}", n) for n in THREADS]
        self.tables = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for server in [*self.servers, *([self.tables] if self.tables else [])]:
            server.stop()

    def select(self, path):
        """One answer for each number of threads: a table or a `Refused`."""
        answers = []
        for server in self.servers:
            if not hasattr(server, "client"):
                server.until_ready()
            try:
                answers.append(server.ask(f"SELECT * FROM {quoted(path)}", self.seconds))
            except Refused as e:
                answers.append(e)
        return answers

    def load(self, files):
        """Loads files, given as pairs of a table's name and a path. Returns the errors by table."""
        refused = {}
        for at in range(0, len(files), MANIFEST_FILES):
            self.load_some(files[at : at + MANIFEST_FILES], refused)
        if len(refused) < len(files):
            self.tables = Server(self.binary, self.database, self.folder, "loaded", 2)
            self.tables.until_ready()
        return refused

    def load_some(self, files, refused):
        manifest = self.folder / "manifest.json"
        manifest.write_text(json.dumps({"tables": [{"table": t, "files": [str(p)]} for t, p in files]}))
        arguments = [self.binary, "load", self.database, "--manifest", str(manifest), "--quiet"]
        try:
            done = subprocess.run(arguments, capture_output=True, text=True, errors="replace", timeout=self.seconds * (1 + len(files) / 4))
            if done.returncode == 0 and not panic(done.stderr):
                return
            error = Refused("panic", panic(done.stderr)) if panic(done.stderr) else Refused("error", done.stderr)
            if done.returncode < 0:
                error = Refused("crash", f"ended by signal {-done.returncode}: {done.stderr[-300:]}")
        except subprocess.TimeoutExpired:
            error = Refused("hang", f"not loaded within {self.seconds} s")
        if len(files) == 1:
            refused[files[0][0]] = error
            return
        # Most often the error names its file; the others are then loaded without it.
        named = [f for f in files if f'"{f[1]}"' in str(error)]
        if len(named) == 1:
            refused[named[0][0]] = error
            self.load_some([f for f in files if f not in named], refused)
        else:
            middle = len(files) // 2
            self.load_some(files[:middle], refused)
            self.load_some(files[middle:], refused)

    def table(self, name):
        """What a load has stored."""
        return self.tables.ask(f'SELECT * FROM "{name}"', self.seconds)
