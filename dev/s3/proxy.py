"""A proxy before an S3 server that fails as networks and servers do, when told to.

Commands come one a line on the control port; the answer is a number.

  pass               no failures from now on
  refuse STATUS N    every N-th request is answered with STATUS, and not passed on
  lose N             the next N requests are passed on, and their connection is closed unanswered
  cut N              the next N answers with a body break off in its middle
  slow MS            each request waits so long
  kill, start        the server: `kill` is SIGKILL
  requests           how many have come so far
"""

import http.client
import http.server
import socket
import socketserver
import threading
import time

REFUSAL = b"<?xml version='1.0'?><Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"


class Faults:
    """What is to go wrong, shared by all connections."""

    def __init__(self):
        self.lock = threading.Lock()
        self.requests = 0
        self.clear()

    def clear(self):
        self.refuse = self.every = self.lose = self.cut = self.slow_ms = 0

    def next(self):
        """Counts a request; returns the status to refuse it with, or None."""
        with self.lock:
            self.requests += 1
            return self.refuse if self.every and self.requests % self.every == 0 else None

    def take(self, name):
        """Whether one of a number of failures is left, which is then used up."""
        with self.lock:
            left = getattr(self, name)
            setattr(self, name, max(left - 1, 0))
            return left > 0


class Proxy:
    def __init__(self, server):
        self.server = server
        self.faults = Faults()
        # The server looks whether a name is taken, and then writes: one at a time makes that one
        # step, as it is in S3.
        self.conditional = threading.Lock()
        self.port = serve(threading_server(http.server.ThreadingHTTPServer, Passing, self))
        self.control_port = serve(threading_server(ControlServer, Control, self))

    def command(self, line):
        faults, words = self.faults, line.split()
        numbers = [int(word) for word in words[1:]]
        match words[0]:
            case "pass":
                faults.clear()
            case "refuse":
                faults.refuse, faults.every = numbers
            case "lose":
                faults.lose = numbers[0]
            case "cut":
                faults.cut = numbers[0]
            case "slow":
                faults.slow_ms = numbers[0]
            case "kill":
                self.server.kill()
            case "start":
                self.server.start()
            case "requests":
                return faults.requests
            case other:
                raise ValueError(f"no command: {other}")
        return 0


class ControlServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True


def threading_server(kind, handler, proxy):
    server = kind(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    server.request_queue_size = 128
    server.proxy = proxy
    return server


def serve(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


class Control(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(b"%d\n" % self.server.proxy.command(line.decode()))


class Passing(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def handle(self):
        try:
            super().handle()
        except ConnectionError:
            pass  # The client did not wait for the answer.

    def log_message(self, *_):
        pass

    def handle_request(self):
        proxy, faults = self.server.proxy, self.server.proxy.faults
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        refused = faults.next()
        time.sleep(faults.slow_ms / 1000)
        if refused:
            return self.answer(refused, [("Content-Type", "application/xml")], REFUSAL)
        try:
            if "If-None-Match" in self.headers:
                with proxy.conditional:
                    status, headers, answer = self.pass_on(body)
            else:
                status, headers, answer = self.pass_on(body)
        except (OSError, http.client.HTTPException):
            # The server is gone, and so is this connection.
            return self.hang_up()
        if faults.take("lose"):
            return self.hang_up()
        cut = len(answer) > 1 and faults.take("cut")
        self.answer(status, headers, answer, len(answer) // 2 if cut else None)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_request

    def pass_on(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.proxy.server.port, timeout=60)
        try:
            connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                connection.putheader(name, value)
            connection.endheaders(body or None)
            response = connection.getresponse()
            return response.status, response.getheaders(), response.read()
        finally:
            connection.close()

    def answer(self, status, headers, body, cut_at=None):
        self.send_response_only(status)
        length = str(len(body))
        for name, value in headers:
            if name.lower() == "content-length":
                length = value  # Of a HEAD, whose answer has no body.
            elif name.lower() not in ("transfer-encoding", "connection"):
                self.send_header(name, value)
        self.send_header("Content-Length", length)
        self.end_headers()
        self.wfile.write(body[:cut_at])
        if cut_at is not None:
            self.hang_up()

    def hang_up(self):
        self.close_connection = True
        try:
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
