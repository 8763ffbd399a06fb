#!/usr/bin/python3
"""Waits until a Kafka broker answers a metadata request, or says why it does not.

    ready.py HOST PORT SECONDS [PID]

Speaks two requests of the protocol over one TCP connection: ApiVersions, then Metadata without
topics. The broker is ready when its answer names a controller and itself as a broker. With PID the
port must be that process's, and it gives up at once when the process is gone. Exit status: 0 ready,
1 not ready within SECONDS, 2 the process ended. A progress line goes to stderr, rewritten in place
on a terminal.
"""

import os
import socket
import struct
import sys
import time

API_METADATA = 3
API_VERSIONS = 18


def _read_exactly(connection, length):
    data = b""
    while len(data) < length:
        part = connection.recv(length - len(data))
        if not part:
            raise ConnectionError("closed by the broker")
        data += part
    return data


def _ask(connection, api, version, body):
    client = b"stack-ready"
    request = struct.pack(">hhih", api, version, api, len(client)) + client + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (length,) = struct.unpack(">i", _read_exactly(connection, 4))
    if not 4 <= length <= 1 << 24:
        raise ConnectionError("not a Kafka broker")
    return _read_exactly(connection, length)[4:]  # Behind the correlation id.


def _text(data, at):
    (length,) = struct.unpack_from(">h", data, at)
    at += 2
    return (None, at) if length < 0 else (data[at : at + length], at + length)


def ask_ready(host, port):
    """None when the broker at host:port is ready, else the reason why not."""
    with socket.create_connection((host, port), timeout=5) as connection:
        connection.settimeout(5)
        versions = _ask(connection, API_VERSIONS, 0, b"")
        error, count = struct.unpack_from(">hi", versions, 0)
        if error:
            return f"ApiVersions answers error {error}"
        ranges = {}
        for i in range(count):
            api, least, most = struct.unpack_from(">hhh", versions, 6 + 6 * i)
            ranges[api] = (least, most)
        least, most = ranges.get(API_METADATA, (0, -1))
        if not least <= 1 <= most:
            return f"Metadata v1 is not served (v{least} to v{most} are)"
        metadata = _ask(connection, API_METADATA, 1, struct.pack(">i", 0))
        (count,) = struct.unpack_from(">i", metadata, 0)
        at = 4
        ports = []
        for _ in range(count):
            at += 4  # The node's id.
            _, at = _text(metadata, at)
            ports.append(struct.unpack_from(">i", metadata, at)[0])
            at += 4
            _, at = _text(metadata, at)
        (controller,) = struct.unpack_from(">i", metadata, at)
        if port not in ports:
            return "the broker has not registered itself yet"
        return None if controller >= 0 else "no controller yet"


def listens(pid, port):
    """Whether the process has a listening socket on the port."""
    inodes = set()
    for name in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{name}", encoding="ascii") as table:
            for row in list(table)[1:]:
                field = row.split()
                if field[3] == "0A" and int(field[1].rsplit(":", 1)[1], 16) == port:
                    inodes.add(f"socket:[{field[9]}]")
    for descriptor in os.listdir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(f"/proc/{pid}/fd/{descriptor}") in inodes:
                return True
        except OSError:
            pass  # Closed meanwhile.
    return False


def main():
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__.strip())
    host, port, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    pid = int(sys.argv[4]) if len(sys.argv) == 5 else None
    start = time.monotonic()
    tty = sys.stderr.isatty()
    said = 0.0
    while True:
        try:
            reason = ask_ready(host, port)
            if reason is None and pid is not None and not listens(pid, port):
                reason = "the port belongs to another process"
        except OSError as error:
            reason = str(error)
        except struct.error:
            reason = "an answer that is not Kafka's"
        waited = time.monotonic() - start
        if reason is None:
            if tty and said:
                sys.stderr.write("\r\033[K")
            return 0
        if pid is not None and not os.path.exists(f"/proc/{pid}"):
            sys.stderr.write(f"{chr(13) if tty else ''}Kafka's process {pid} ended\n")
            return 2
        if waited > seconds:
            sys.stderr.write(f"{chr(13) if tty else ''}Kafka is not ready after {seconds:.0f} s: {reason}\n")
            return 1
        if waited - said >= (1 if tty else 10):
            said = waited
            line = f"  waiting for Kafka, {waited:.0f} s of at most {seconds:.0f}: {reason}"
            sys.stderr.write(f"\r\033[K{line}" if tty else f"{line}\n")
            sys.stderr.flush()
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
