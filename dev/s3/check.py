"""Runs the tests of object storage against a real S3 server, and its failures.

Usage: python dev/s3/check.py S3S-FS COMMAND...

S3S-FS is the server (crates.io: s3s-fs), which keeps objects as files and checks signatures. It
is started with a bucket in a temporary folder, behind a proxy that can fail (proxy.py), and COMMAND
runs with both in its environment: AWS_ENDPOINT and the credentials, THALWEG_S3_CONTROL, where the
proxy takes commands, and THALWEG_S3_FOLDER, where the server keeps its objects.
"""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

from proxy import Proxy

KEYS = {"AWS_ACCESS_KEY_ID": "thalweg", "AWS_SECRET_ACCESS_KEY": "a secret of the tests"}


class Server:
    """The server's process; its objects outlive it."""

    def __init__(self, binary, folder):
        self.binary, self.folder, self.process = binary, folder, None
        self.port = free_port()

    def start(self):
        if self.process:
            return
        self.process = subprocess.Popen(
            [
                self.binary,
                "--host", "127.0.0.1",
                "--port", str(self.port),
                "--access-key", KEYS["AWS_ACCESS_KEY_ID"],
                "--secret-key", KEYS["AWS_SECRET_ACCESS_KEY"],
                self.folder,
            ],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )
        wait_for(self.port)

    def kill(self):
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process = None


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(port):
    for _ in range(200):
        try:
            return socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.05)
    sys.exit(f"the server does not listen on port {port}")


def main(binary, command):
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "bucket").mkdir()
        server = Server(binary, folder)
        server.start()
        proxy = Proxy(server)
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            **KEYS,
            "AWS_REGION": "us-east-1",
            "AWS_ENDPOINT": f"http://127.0.0.1:{proxy.port}",
            "THALWEG_S3_CONTROL": f"127.0.0.1:{proxy.control_port}",
            "THALWEG_S3_FOLDER": folder,
        }
        try:
            return subprocess.run(command, env=environment).returncode
        finally:
            server.kill()


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1], sys.argv[2:]))
