"""The little of Kafka's protocol that the stack's scripts speak, in its old plain encoding."""

import socket
import struct

METADATA = 3
API_VERSIONS = 18
CREATE_TOPICS = 19


class Connection:
    """One TCP connection to a broker; requests are answered in turn. Raises OSError."""

    def __init__(self, host, port, timeout=5):
        self._socket = socket.create_connection((host, port), timeout=timeout)
        self._socket.settimeout(timeout)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._socket.close()

    def ask(self, api, version, body=b""):
        """The answer's bytes behind the correlation id."""
        request = struct.pack(">hhi", api, version, api) + text("deploy-stack") + body
        self._socket.sendall(struct.pack(">i", len(request)) + request)
        (length,) = struct.unpack(">i", self._read(4))
        if not 4 <= length <= 1 << 24:
            raise ConnectionError("not a Kafka broker")
        return self._read(length)[4:]

    def versions(self):
        """{api: (least version, greatest version)}"""
        reader = Reader(self.ask(API_VERSIONS, 0))
        error = reader.number("h")
        if error:
            raise ConnectionError(f"ApiVersions answers error {error}")
        return {
            reader.number("h"): (reader.number("h"), reader.number("h"))
            for _ in range(reader.number("i"))
        }

    def _read(self, length):
        data = b""
        while len(data) < length:
            part = self._socket.recv(length - len(data))
            if not part:
                raise ConnectionError("closed by the broker")
            data += part
        return data


class Reader:
    """Takes values from an answer, one after the other."""

    def __init__(self, data):
        self._data = data
        self._at = 0

    def number(self, kind):
        """kind: b, h, i or q for 8, 16, 32 or 64 bits."""
        try:
            (value,) = struct.unpack_from(">" + kind, self._data, self._at)
        except struct.error:
            raise ConnectionError("an answer that is not Kafka's") from None
        self._at += struct.calcsize(kind)
        return value

    def text(self):
        length = self.number("h")
        if length < 0:
            return None
        self._at += length
        return self._data[self._at - length : self._at].decode(errors="replace")


def text(value):
    data = value.encode()
    return struct.pack(">h", len(data)) + data
