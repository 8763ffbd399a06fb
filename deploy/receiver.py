#!/usr/bin/python3
"""A small receiver of webhooks: verifies each signature and shows each request as a line.

    receiver.py [--listen HOST:PORT] [--secrets FILE] [--fail PATH]... [--log FILE]

FILE of --secrets has lines `PATH SECRET`: the secrets (whsec_...) that requests to PATH are signed
with, one a line; it is read again when it changes. A request without a valid signature is answered
401, one to a path of --fail 500, any other 200. --log appends a JSON object per request. Port 0
takes a free one; the first line on standard output says where it listens.

It is what a customer of Postrider writes, in the standard library alone: see https://www.standardwebhooks.com.
"""

import argparse
import base64
import binascii
import hashlib
import hmac
import http.server
import json
import os
import signal
import sys
import threading
import time

BODY_BYTES_MAX = 64 << 20
CLOCK_SKEW_MAX_S = 300


class Secrets:
    """The keys by path, from the file as it is now."""

    def __init__(self, path):
        self._path = path
        self._stamp = None
        self._keys = {}
        self._lock = threading.Lock()

    def keys(self, path):
        if self._path is None:
            return []
        with self._lock:
            try:
                stat = os.stat(self._path)
            except FileNotFoundError:
                return []
            stamp = (stat.st_mtime_ns, stat.st_ino, stat.st_size)
            if stamp != self._stamp:
                self._keys = {}
                with open(self._path, encoding="ascii") as lines:
                    for line in lines:
                        name, _, secret = line.strip().partition(" ")
                        if secret.startswith("whsec_"):
                            key = base64.b64decode(secret[len("whsec_") :])
                            self._keys.setdefault(name, []).append(key)
                self._stamp = stamp
            return self._keys.get(path, [])


def why_not_signed(headers, body, keys, now):
    """None when the request is signed with one of the keys, else the reason."""
    if not keys:
        return "no secret for this path"
    message_id = headers.get("webhook-id", "")
    timestamp = headers.get("webhook-timestamp", "")
    if not message_id or not timestamp.isdigit():
        return "webhook-id or webhook-timestamp is missing"
    if abs(now - int(timestamp)) > CLOCK_SKEW_MAX_S:
        return "webhook-timestamp is too far from now"
    # The signature covers the bytes on the wire: never parse and write them again before.
    signed = f"{message_id}.{timestamp}.".encode() + body
    expected = [hmac.new(key, signed, hashlib.sha256).digest() for key in keys]
    for part in headers.get("webhook-signature", "").split():
        version, _, signature = part.partition(",")
        if version != "v1":
            continue
        try:
            given = base64.b64decode(signature, validate=True)
        except binascii.Error:
            continue
        if any(hmac.compare_digest(given, one) for one in expected):
            return None
    return "no signature fits"


def describe(body):
    """(messages, text): the body's envelopes, or what is wrong with them."""
    try:
        value = json.loads(body)
        messages = value if isinstance(value, list) else [value]
        kinds = {}
        for message in messages:
            where = message["tenant"]
            if message["department"] is not None:
                where += "/" + message["department"]
            kind = f"{message['type']} of {where}"
            kinds[kind] = kinds.get(kind, 0) + 1
    except (ValueError, TypeError, KeyError) as error:
        return [], f"not our envelope: {error!r}"
    text = ", ".join(kind if count == 1 else f"{count} {kind}" for kind, count in kinds.items())
    return messages, text


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 120
    # Set by main().
    secrets = None
    failing = frozenset()
    log = None
    lock = threading.Lock()

    def do_POST(self):
        length = self.headers.get("content-length", "")
        if not length.isdigit() or int(length) > BODY_BYTES_MAX:
            self.close_connection = True
            self._answer(411 if not length.isdigit() else 413)
            return
        body = self.rfile.read(int(length))
        path = self.path.partition("?")[0]
        fault = why_not_signed(self.headers, body, self.secrets.keys(path), time.time())
        status = 401 if fault else 500 if path in self.failing else 200
        messages, text = describe(body)
        self._answer(status)
        self._show(path, status, fault, messages, text)

    def do_GET(self):
        self._answer(405)

    def _answer(self, status):
        self.send_response(status)
        self.send_header("content-length", "0")
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()

    def _show(self, path, status, fault, messages, text):
        count = f"{len(messages)} message{'' if len(messages) == 1 else 's'}"
        attempt = self.headers.get("webhook-attempt", "?")
        with self.lock:
            print(
                time.strftime("%H:%M:%S"),
                f"POST {path:8}",
                status,
                f"attempt {attempt}",
                f"signature {'BAD: ' + fault if fault else 'verified'}",
                f"{count}: {text}",
                self.headers.get("webhook-id", ""),
                sep="  ",
                flush=True,
            )
            if self.log:
                entry = {
                    "path": path,
                    "status": status,
                    "verified": fault is None,
                    "attempt": attempt,
                    "webhook_id": self.headers.get("webhook-id"),
                    "event_ids": [message.get("event_id") for message in messages],
                }
                self.log.write(json.dumps(entry) + "\n")
                self.log.flush()

    def log_message(self, format, *args):  # The lines above say it all.
        pass


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--listen", default="127.0.0.1:0", metavar="HOST:PORT")
    parser.add_argument("--secrets", metavar="FILE")
    parser.add_argument("--fail", action="append", default=[], metavar="PATH")
    parser.add_argument("--log", metavar="FILE")
    options = parser.parse_args()
    host, _, port = options.listen.rpartition(":")
    Handler.secrets = Secrets(options.secrets)
    Handler.failing = frozenset(options.fail)
    if options.log:
        Handler.log = open(options.log, "a", encoding="utf-8")
    server = Server((host, int(port)), Handler)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    print(f"listening on {host}:{server.server_address[1]}", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass


if __name__ == "__main__":
    main()
