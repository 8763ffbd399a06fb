#!/usr/bin/python3
"""Waits until a Kafka broker answers a metadata request, or says why it does not.

    ready.py HOST PORT SECONDS [PID]

The broker is ready when its answer names a controller and itself as a broker. With PID the port
must be that process's, and it gives up at once when the process is gone. Exit status: 0 ready, 1
not ready within SECONDS, 2 the process ended. A progress line goes to stderr, rewritten in place on
a terminal.
"""

import os
import struct
import sys
import time

import wire


def reason_not_ready(host, port):
    """None when the broker at host:port is ready."""
    with wire.Connection(host, port) as connection:
        least, most = connection.versions().get(wire.METADATA, (0, -1))
        if not least <= 1 <= most:
            return f"Metadata v1 is not served (v{least} to v{most} are)"
        answer = wire.Reader(connection.ask(wire.METADATA, 1, struct.pack(">i", 0)))
        ports = []
        for _ in range(answer.number("i")):
            answer.number("i")  # The node's id.
            answer.text()  # Its host.
            ports.append(answer.number("i"))
            answer.text()  # Its rack.
        if port not in ports:
            return "the broker has not registered itself yet"
        return None if answer.number("i") >= 0 else "no controller yet"


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

    def say(line, end="\n"):
        sys.stderr.write(("\r\033[K" if tty else "") + line + end)
        sys.stderr.flush()

    while True:
        try:
            reason = reason_not_ready(host, port)
            if reason is None and pid is not None and not listens(pid, port):
                reason = "the port belongs to another process"
        except OSError as error:
            reason = str(error)
        waited = time.monotonic() - start
        if reason is None:
            if tty and said:
                say("", end="")
            return 0
        if pid is not None and not os.path.exists(f"/proc/{pid}"):
            say(f"Kafka's process {pid} ended")
            return 2
        if waited > seconds:
            say(f"Kafka is not ready after {seconds:.0f} s: {reason}")
            return 1
        if waited - said >= (1 if tty else 10):
            said = waited
            say(
                f"         waiting for Kafka, {waited:.0f} s of at most {seconds:.0f}: {reason}",
                end="" if tty else "\n",
            )
        time.sleep(0.1)


if __name__ == "__main__":
    sys.exit(main())
