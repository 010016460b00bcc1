"""What somebody tries who is not let in: bytes, false proofs, other people's names.

Each comes from an address of its own (127.0.0.0/8, of which Linux lets everybody bind any), so that
the wait after failures of one is not that of the next. `TRIES` is read by tries.py.
"""

import base64
import itertools
import os
import pathlib
import socket
import ssl
import struct
import time

import pyarrow.flight
from flight import command
from wire import SSL_REQUEST, TIMEOUT_SECONDS, VERSION, Closed, Refused, Scram, Wire

USER, PASSWORD = os.environ["PGUSER"], os.environ["PGPASSWORD"]
# Roles that tries.py makes, whose passwords are guessed: after 5 failures a name has to wait.
VICTIMS = ["tries_ann", "tries_bob", "tries_cid"]
VICTIMS_PASSWORD = "a victim's"
MALFORMED, WRONG, WAIT = "08P01", "28P01", "53400"
OK, CLOSED, SILENT = "ok", "closed", "no answer"

# What is tried, what is wanted, the function that tries it: it returns what came back, or raises.
TRIES = []
_addresses = (f"127.0.{i // 250 + 1}.{i % 250 + 1}" for i in itertools.count())


def tries(what, wanted):
    def mark(function):
        TRIES.append((what, wanted, function))
        return function

    return mark


def stranger():
    return Wire(next(_addresses))


def answer(function):
    """State, message, and all that came back."""
    try:
        text = function()
        return OK, "", str(text or "")
    except Refused as refused:
        return refused.state, refused.message, refused.message
    except Closed:
        return CLOSED, "", ""
    except TimeoutError:
        return SILENT, "", ""
    except AssertionError as error:
        return "not so", str(error), ""


# Before a name is given.


def opening(what, wanted, data):
    def function():
        with stranger() as wire:
            wire.send(data)
            return wire.until(b"R")

    TRIES.append((what, wanted, function))


opening("HTTP on the port of PostgreSQL", MALFORMED, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
opening("a first message of 0 bytes", MALFORMED, struct.pack("!I", 0))
opening("a first message of -1 bytes", MALFORMED, struct.pack("!i", -1))
opening("a first message that is said to have 1 GiB", MALFORMED, struct.pack("!II", 1 << 30, VERSION))
opening("protocol 2.0", "0A000", struct.pack("!II", 9, 2 << 16) + b"\0")
opening("protocol 99.0", "0A000", struct.pack("!II", 9, 99 << 16) + b"\0")
opening("no user", "28000", struct.pack("!II", 9, VERSION) + b"\0")
opening("a user without an end", MALFORMED, struct.pack("!II", 16, VERSION) + b"user\0ann")
opening("a name that is not UTF-8", "22021", struct.pack("!II", 17, VERSION) + b"user\0\xff\xfe\0\0")
opening("half a first message, and then nothing", CLOSED, struct.pack("!II", 100, VERSION) + b"user\0")
opening("nothing at all", CLOSED, b"")


@tries("300 connections that say nothing: others are let in", OK)
def silent_crowd():
    crowd = [stranger() for _ in range(300)]
    try:
        with stranger() as wire:
            wire.login(USER, PASSWORD)
    finally:
        for wire in crowd:
            wire.socket.close()


# A name without a proof.


def in_place_of_a_proof(what, wanted, *messages):
    def function():
        with stranger() as wire:
            wire.startup(user=USER, database="thalweg")
            wire.mechanisms()
            for kind, body in messages:
                wire.message(kind, body)
            return wire.receive()

    TRIES.append((what, wanted, function))


in_place_of_a_proof("a query before the proof", MALFORMED, (b"Q", b"SELECT 1\0"))
in_place_of_a_proof("a prepared statement before the proof", MALFORMED, (b"P", b"\0SELECT 1\0\0\0"), (b"S", b""))
in_place_of_a_proof("COPY data before the proof", MALFORMED, (b"d", b"x"))
in_place_of_a_proof("a function call before the proof", MALFORMED, (b"F", b"\0\0\0\1\0\0\0\0\0\0"))
in_place_of_a_proof("a password in clear", MALFORMED, (b"p", PASSWORD.encode() + b"\0"))
in_place_of_a_proof("an MD5 answer", MALFORMED, (b"p", b"md5" + b"0" * 32 + b"\0"))
in_place_of_a_proof("an empty answer", MALFORMED, (b"p", b""))
in_place_of_a_proof("an answer of 1 MiB", "54000", (b"p", b"x" * (1 << 20)))
in_place_of_a_proof("an unknown kind of message", MALFORMED, (b"\x00", b"xx"))


@tries("an answer that is said to have 2 GiB", "54000")
def announced():
    with stranger() as wire:
        wire.startup(user=USER)
        wire.mechanisms()
        wire.send(b"p" + struct.pack("!I", (1 << 31) - 1) + b"x")
        return wire.receive()


@tries("a query in one packet with the name", MALFORMED)
def at_once():
    body = f"user\0{USER}\0\0".encode()
    query = b"SELECT 1\0"
    with stranger() as wire:
        wire.send(
            struct.pack("!II", len(body) + 8, VERSION) + body + b"Q" + struct.pack("!I", len(query) + 4) + query
        )
        wire.mechanisms()
        return wire.receive()


# False proofs.


def proof(user=USER, password=PASSWORD, mechanism="SCRAM-SHA-256", scram=None, tls=False, **changed):
    with stranger() as wire:
        if tls:
            wire.encrypt()
        wire.startup(user=user, database="thalweg")
        wire.mechanisms()
        scram = scram or Scram()
        wire.finish(scram.last(wire.sasl(mechanism, scram.first()), password, **changed))
        return wire.query("SELECT current_user")


def false_proof(what, wanted, **changed):
    TRIES.append((what, wanted, lambda: proof(**changed)))


false_proof("a wrong password", WRONG, user=VICTIMS[0], password="guess")
false_proof("an empty password", WRONG, user=VICTIMS[0], password="")
false_proof("a user that is not there", WRONG, user="nosuch")
false_proof("a role that has no password", WRONG, user="pg_read_all_data")
false_proof("the superuser, who has no password", WRONG, user="thalweg")
false_proof("SQL as a user's name", WRONG, user="x' OR '1'='1")
false_proof("a proof of zeros", WRONG, user=VICTIMS[0], proof=bytes(32))
false_proof("a proof of no bytes", MALFORMED, proof=b"")
false_proof("one's own password for another user", WRONG, user=VICTIMS[0], password=PASSWORD)
false_proof("the password in another case", WRONG, user=VICTIMS[0], password=VICTIMS_PASSWORD.upper())
false_proof("a nonce of one's own", MALFORMED, nonce="mine")
false_proof("SCRAM-SHA-1", MALFORMED, mechanism="SCRAM-SHA-1")
false_proof("SCRAM-SHA-256-PLUS without TLS", MALFORMED, mechanism="SCRAM-SHA-256-PLUS")
false_proof(
    "channel binding to another certificate", MALFORMED, mechanism="SCRAM-SHA-256-PLUS", tls=True,
    scram=Scram("p=tls-server-end-point,,", binding=bytes(32)),
)
false_proof("over TLS, as if the server knew no channel binding", MALFORMED, tls=True, scram=Scram("y,,"))


@tries("another user's name inside the proof: it does not count", OK)
def another_name():
    found = proof(scram=Scram(name="thalweg"))
    assert USER in found and "thalweg" not in found.replace(USER, ""), found


def first_messages(what, first):
    def function():
        with stranger() as wire:
            wire.startup(user=USER)
            wire.mechanisms()
            return wire.sasl("SCRAM-SHA-256", first)

    TRIES.append((what, MALFORMED, function))


first_messages("SCRAM that does not begin", b"")
first_messages("SCRAM without a nonce", b"n,,n=x")
first_messages("SCRAM that is not UTF-8", b"n,,n=\xff,r=x")
first_messages("SCRAM with an extension that must be known", b"n,,m=x,n=x,r=y")
first_messages("SCRAM for another user by authzid", b"n,a=thalweg,n=x,r=y")


@tries("the recorded proof of another connection", MALFORMED)
def replayed():
    scram = Scram()
    with stranger() as wire:
        wire.startup(user=USER)
        wire.mechanisms()
        recorded = scram.last(wire.sasl("SCRAM-SHA-256", scram.first()), PASSWORD)
        wire.finish(recorded)
    with stranger() as wire:
        wire.startup(user=USER)
        wire.mechanisms()
        wire.sasl("SCRAM-SHA-256", scram.first())
        wire.finish(recorded)


@tries("whether a user is there, by what the server says", OK)
def told_apart():
    """Salts differ, and stay the same; rounds and the error's words do not."""
    seen = []
    for user in (VICTIMS[1], "nosuch"):
        salts = set()
        for _ in range(2):
            with stranger() as wire:
                wire.startup(user=user)
                offered = wire.mechanisms()
                scram = Scram()
                said = wire.sasl("SCRAM-SHA-256", scram.first())
                fields = dict(f.split("=", 1) for f in said.split(","))
                salts.add(fields["s"])
                try:
                    wire.finish(scram.last(said, "guess"))
                except Refused as refused:
                    error = refused.state, refused.message.replace(user, "…")
        seen.append((offered, fields["i"], len(fields["s"]), len(salts), error))
    assert seen[0] == seen[1], seen


@tries("12 guesses from one address: it has to wait, even with the password", WAIT)
def brute_force():
    address = next(_addresses)
    for _ in range(12):
        answer(lambda: guess(address, "guess"))
    # Others need not.
    with stranger() as wire:
        wire.login(USER, PASSWORD)
    guess(address, VICTIMS_PASSWORD)


def guess(address, password):
    with Wire(address) as wire:
        wire.login(VICTIMS[2], password)


# TLS and cancelling.


@tries("plain text after TLS was agreed on", CLOSED)
def plain_after_tls():
    with stranger() as wire:
        wire.send(SSL_REQUEST)
        assert wire.socket.recv(1) == b"S"
        wire.startup(user=USER)
        # An alert of TLS may come, nothing of the protocol.
        found = wire.socket.recv(1 << 16)
        assert b"SCRAM" not in found, found
        raise Closed


@tries("a name slipped in before TLS", CLOSED)
def slipped_in():
    body = f"user\0{USER}\0\0".encode()
    with stranger() as wire:
        wire.send(SSL_REQUEST + struct.pack("!II", len(body) + 8, VERSION) + body)
        return wire.receive()


@tries("TLS 1.1", CLOSED)
def old_tls():
    with stranger() as wire:
        wire.send(SSL_REQUEST)
        wire.socket.recv(1)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        try:
            context.set_ciphers("ALL:@SECLEVEL=0")
            context.minimum_version = ssl.TLSVersion.TLSv1
            context.maximum_version = ssl.TLSVersion.TLSv1_1
            context.wrap_socket(wire.socket)
        except (ssl.SSLError, ConnectionError):
            raise Closed from None


@tries("to cancel another's statement with a guessed key", OK)
def cancels():
    with stranger() as wire:
        wire.startup(user=USER, database="thalweg")
        wire.mechanisms()
        scram = Scram()
        wire.message(b"p", scram.last(wire.sasl("SCRAM-SHA-256", scram.first()), PASSWORD).encode())
        keys = next(body for kind, body in wire.until(b"Z") if kind == b"K")
        process, secret = struct.unpack("!II", keys)
        wire.message(b"Q", b"SELECT count(*) FROM generate_series(1, 100000000000)\0")
        time.sleep(0.5)
        for wrong in (0, 1, secret ^ 1):
            with stranger() as other:
                other.send(struct.pack("!IIII", 16, 80877102, process, wrong))
        wire.socket.settimeout(1)
        try:
            raise AssertionError(f"it ended: {wire.receive()}")
        except TimeoutError:
            pass
        with stranger() as other:
            other.send(struct.pack("!IIII", 16, 80877102, process, secret))
        wire.socket.settimeout(20)
        wire.read = wire.socket.makefile("rb")
        try:
            wire.until(b"Z")
        except Refused as refused:
            assert refused.state == "57014", refused.state
            return
        raise AssertionError("the right key did nothing")


# Arrow Flight.


def flight(what, wanted, *headers, action=None, ticket=None):
    def function():
        certificate = pathlib.Path(os.environ["PGSSLROOTCERT"]).read_text()
        client = pyarrow.flight.FlightClient(f"grpc+tls://{os.environ['THALWEG_FLIGHT']}", tls_root_certs=certificate)
        options = pyarrow.flight.FlightCallOptions(timeout=TIMEOUT_SECONDS, headers=list(headers))
        try:
            if action:
                return list(client.do_action(pyarrow.flight.Action(action, b""), options))
            if ticket:
                return client.do_get(pyarrow.flight.Ticket(ticket), options).read_all()
            return client.get_flight_info(command("SELECT 1"), options)
        except Exception as error:
            # gRPC's words before and after are not the server's.
            text = " ".join(str(error).split()).split("with message: ")[-1]
            raise Refused(type(error).__name__, text.split(". gRPC client debug")[0].split(" hint: ")[0]) from None
        finally:
            client.close()

    TRIES.append((what, wanted, function))


UNAUTHENTICATED = "FlightUnauthenticatedError"
basic = lambda text: (b"authorization", b"Basic " + base64.b64encode(text.encode()))
flight("Flight without a header", UNAUTHENTICATED)
flight("Flight with a guessed token", UNAUTHENTICATED, (b"authorization", b"Bearer guessed"))
flight("Flight with a wrong password", UNAUTHENTICATED, basic(f"{VICTIMS[1]}:guess"))
flight("Flight with a header that is no base64", "not ok", (b"authorization", b"Basic %%%"))
flight("Flight with a made-up kind of proof", "not ok", (b"authorization", b"Magic please"))
flight("a Flight action without a header", UNAUTHENTICATED, action="BeginTransaction")
flight("a made-up Flight ticket without a header", UNAUTHENTICATED, ticket=b"1")
flight("a session's name without a header", UNAUTHENTICATED, (b"x-session-id", b"guessed"))


@tries("Flight in clear where there is a certificate", CLOSED)
def flight_in_clear():
    host, port = os.environ["THALWEG_FLIGHT"].split(":")
    with socket.create_connection((host, int(port)), 10, (next(_addresses), 0)) as plain:
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        try:
            found = plain.recv(1 << 16)
        except ConnectionError:
            raise Closed from None
        # At most an alert of TLS (21).
        assert not found or found[0] == 21, found
        raise Closed


# HTTP.


def http(what, wanted, path, method="GET", headers=()):
    def function():
        host, port = os.environ["THALWEG_HTTP"].split(":")
        with socket.create_connection((host, int(port)), 10, (next(_addresses), 0)) as plain:
            lines = [f"{method} {path} HTTP/1.1", "Host: x", "Connection: close", *headers, "", ""]
            try:
                plain.sendall("\r\n".join(lines).encode())
                found = b"".join(iter(lambda: plain.recv(1 << 16), b"")).decode(errors="replace")
            except ConnectionError:
                raise Closed from None
        if not found:
            raise Closed
        status = found.split()[1]
        assert "root:" not in found and USER not in found, found
        if status != "200":
            raise Refused(status, "")

    TRIES.append((what, wanted, function))


http("/metrics: figures, without names of users", OK, "/metrics")
http("HTTP: /../../etc/passwd", "404", "/../../../../etc/passwd")
http("HTTP: /%2e%2e/%2e%2e/etc/passwd", "404", "/%2e%2e/%2e%2e/%2e%2e/etc/passwd")
http("HTTP: POST /metrics", "405", "/metrics", method="POST")
http("HTTP: a path of 100 KB", "414", "/" + "x" * 100_000)
http("HTTP: a header of 1 MB", "431", "/metrics", headers=["X: " + "x" * 1_000_000])
