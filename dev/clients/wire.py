"""The PostgreSQL protocol byte by byte, for a client that does what no library would."""

import base64
import hashlib
import hmac
import os
import secrets
import socket
import ssl
import struct

VERSION = 3 << 16
SSL_REQUEST = struct.pack("!II", 8, 80877103)
TIMEOUT_SECONDS = 20
NONCE_BYTES = 18


class Refused(Exception):
    """The server has said no: its SQLSTATE and message, and what else it says."""

    def __init__(self, state, message, hint=None, position=None):
        super().__init__(message)
        self.state, self.message, self.hint, self.position = state, message, hint, position


class Closed(Exception):
    """It has closed the connection without a word."""


class Wire:
    """A connection. `source`: an address of this machine, as which it comes."""

    def __init__(self, source="127.0.0.1"):
        address = (os.environ["PGHOST"], int(os.environ["PGPORT"]))
        self.socket = socket.create_connection(address, TIMEOUT_SECONDS, (source, 0))
        self.read = self.socket.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, data):
        try:
            self.socket.sendall(data)
        except (ConnectionError, ssl.SSLError):
            pass  # what it has said before is read next

    def message(self, kind, body=b""):
        self.send(kind + struct.pack("!I", len(body) + 4) + body)

    def startup(self, version=VERSION, **parameters):
        body = b"".join(f"{name}\0{value}\0".encode() for name, value in parameters.items()) + b"\0"
        self.send(struct.pack("!II", len(body) + 8, version) + body)

    def encrypt(self):
        self.send(SSL_REQUEST)
        if self.socket.recv(1) != b"S":
            raise Closed
        context = ssl.create_default_context(cafile=os.environ["PGSSLROOTCERT"])
        self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.read = self.socket.makefile("rb")

    def receive(self):
        """The next message; an error is raised."""
        try:
            kind = self.read.read(1)
            length = self.read.read(4)
            body = self.read.read(struct.unpack("!I", length)[0] - 4) if len(length) == 4 else b""
        except (ConnectionError, ssl.SSLError):
            raise Closed from None
        if not kind or len(length) < 4:
            raise Closed
        if kind == b"E":
            fields = {f[:1]: f[1:].decode() for f in body.split(b"\0") if f}
            raise Refused(fields[b"C"], fields[b"M"], fields.get(b"H"), fields.get(b"P"))
        return kind, body

    def until(self, wanted):
        """Messages up to the wanted one, and that."""
        found = []
        while not found or found[-1][0] != wanted:
            found.append(self.receive())
        return found

    def mechanisms(self):
        _, body = self.until(b"R")[-1]
        return [m.decode() for m in body[4:].split(b"\0") if m]

    def sasl(self, mechanism, first):
        """The client's first message; the server's."""
        self.message(b"p", mechanism.encode() + b"\0" + struct.pack("!I", len(first)) + first)
        return self.until(b"R")[-1][1][4:].decode()

    def finish(self, last):
        """The client's last message; then it is in, or `Refused`."""
        self.message(b"p", last.encode() if isinstance(last, str) else last)
        self.until(b"Z")

    def login(self, user, password, **parameters):
        self.startup(user=user, database="thalweg", **parameters)
        self.mechanisms()
        scram = Scram()
        self.finish(scram.last(self.sasl("SCRAM-SHA-256", scram.first()), password))

    def query(self, sql):
        """All that came back, as text."""
        self.message(b"Q", sql.encode() + b"\0")
        return b"".join(body for _, body in self.until(b"Z")).decode(errors="replace")


class Scram:
    """The client's side of RFC 5802."""

    def __init__(self, header="n,,", name="", binding=b""):
        self.header, self.binding = header, binding
        self.bare = f"n={name},r={secrets.token_hex(NONCE_BYTES)}"

    def first(self):
        return (self.header + self.bare).encode()

    def last(self, server_first, password, nonce=None, proof=None):
        fields = dict(f.split("=", 1) for f in server_first.split(","))
        salt, rounds = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, rounds)
        sign = lambda key, text: hmac.digest(key, text, "sha256")
        client_key = sign(salted, b"Client Key")
        bound = base64.b64encode(self.header.encode() + self.binding).decode()
        without_proof = f"c={bound},r={nonce or fields['r']}"
        signed = f"{self.bare},{server_first},{without_proof}".encode()
        signature = sign(hashlib.sha256(client_key).digest(), signed)
        if proof is None:
            proof = bytes(a ^ b for a, b in zip(client_key, signature))
        return f"{without_proof},p={base64.b64encode(proof).decode()}"
