"""A server of the checks: a database of its own, a role with a password, a certificate."""

import os
import pathlib
import secrets
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

ROLE = "tester"
# What a debug binary on a busy machine may take.
START_SECONDS = 60
DRAIN_SECONDS = 10
# In which the statements of a client that has left must end.
LEFT_SECONDS = 10


def free_ports(count):
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def certificate(folder):
    """Of this machine's own address, signed by itself."""
    cert, key = folder / "server.pem", folder / "server.key"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
            "-nodes", "-days", "2", "-subj", "/CN=localhost",
            "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-keyout", key, "-out", cert,
        ],
        check=True, capture_output=True,
    )
    return cert, key


class Server:
    """Used with `with`; afterwards `ended` says how it ended: None if as it should."""

    def __init__(self, binary, *flags, trust=False):
        self.binary, self.flags, self.trust = binary, flags, trust
        # 16 characters. With the role's name it is no multiple of three bytes: its base64 needs
        # padding, which Go's client of Flight leaves out.
        self.password = secrets.token_urlsafe(12)
        self.ended = None

    def __enter__(self):
        self.scratch = tempfile.TemporaryDirectory(prefix="thalweg-clients-")
        folder = pathlib.Path(self.scratch.name)
        database = folder / "clients.db"
        self.log = folder / "log"
        self.pg, self.flight, self.http = free_ports(3)
        command = [self.binary, "serve", database]
        for name in ("pg", "flight", "http"):
            command += [f"--{name}", f"127.0.0.1:{getattr(self, name)}"]
        if self.trust:
            command += ["--create"]
        else:
            self.cert, key = certificate(folder)
            role = f"CREATE ROLE {ROLE} LOGIN SUPERUSER PASSWORD '{self.password}'"
            subprocess.run([self.binary, "sql", database, "--create", "-c", role], check=True, capture_output=True)
            command += ["--auth", "scram", "--tls-cert", self.cert, "--tls-key", key]
        command += ["--drain-timeout", f"{DRAIN_SECONDS}s", *self.flags]
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        self.until_ready()
        return self

    def until_ready(self):
        begun = time.monotonic()
        while time.monotonic() - begun < START_SECONDS and self.process.poll() is None:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.http}/readyz", timeout=5).read()
                return
            except (OSError, urllib.error.URLError):
                time.sleep(0.05)
        self.process.kill()
        raise SystemExit(f"the server did not start:\n{self.tail()}")

    def environment(self):
        """Where it is, as clients are told."""
        found = {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.pg),
            "PGDATABASE": "thalweg",
            "PGUSER": "anybody" if self.trust else ROLE,
            "THALWEG_FLIGHT": f"127.0.0.1:{self.flight}",
            "THALWEG_HTTP": f"127.0.0.1:{self.http}",
        }
        if not self.trust:
            found |= {"PGPASSWORD": self.password, "PGSSLROOTCERT": str(self.cert)}
        return found

    def tail(self):
        return "\n".join(self.log.read_text().splitlines()[-20:])

    def trouble(self):
        """What a client has left behind, or None."""
        if self.process.poll() is not None:
            return f"the server has ended with {self.process.returncode}:\n{self.tail()}"
        query = "SELECT query FROM system.queries WHERE query NOT LIKE '%system.queries%'"
        environment = os.environ | self.environment()
        until = time.monotonic() + LEFT_SECONDS
        while True:
            asked = subprocess.run(
                ["psql", "-X", "-At", "-c", query], env=environment, capture_output=True, text=True, timeout=60
            )
            if "too many tries" in asked.stderr and time.monotonic() < until:
                # Its own wrong passwords: that ends soon.
                time.sleep(1)
                continue
            if asked.returncode != 0:
                return f"the server does not answer: {asked.stderr.strip()}"
            if not asked.stdout.strip():
                break
            if time.monotonic() > until:
                return f"it still runs: {asked.stdout.strip()}"
            time.sleep(0.2)
        if "panicked" in self.log.read_text():
            return f"a panic:\n{self.tail()}"
        return None

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(DRAIN_SECONDS + 10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                self.ended = f"it was not drained within {DRAIN_SECONDS} s"
        if self.process.returncode != 0 and not self.ended:
            self.ended = f"exit code {self.process.returncode}:\n{self.tail()}"
        self.scratch.cleanup()
