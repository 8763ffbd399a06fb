"""A TCP relay on the loopback that passes on, stalls or cuts: the network between two processes."""
import selectors
import socket
import struct
import threading

CHUNK = 256 << 10


class Relay:
    """Listens on `port` and passes on to `target`, until told otherwise:

      open    as if it were not there
      stalled connections stay, nothing passes, as when packets are lost; new ones are accepted
      cut     connections are reset, new ones too

    A thread of its own; the methods may be called by any. It buffers one chunk a direction."""

    def __init__(self, port, target):
        self.target = ("127.0.0.1", target)
        self.mode = "open"
        self._selector = selectors.DefaultSelector()
        self._peers = {}  # a socket's other end
        self._waiting = {}  # what is to be written to a socket; its peer is not read meanwhile
        self._wake, wake = socket.socketpair()
        self._wake.setblocking(False)
        wake.setblocking(False)
        self._listener = socket.socket()
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._listener.bind(("127.0.0.1", port))
        self._listener.listen(64)
        self._listener.setblocking(False)
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(wake, selectors.EVENT_READ)
        self._woken = wake
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def set(self, mode):
        self.mode = mode
        self._wake.send(b"x")

    def close(self):
        self.set("closed")
        self._thread.join()
        for one in (self._listener, self._wake, self._woken):
            one.close()

    def _run(self):
        while self.mode != "closed":
            if self.mode == "stalled":
                self._until_woken()
                continue
            for key, events in self._selector.select(1):
                if key.fileobj is self._woken:
                    self._drain_wake()
                elif key.fileobj is self._listener:
                    self._accept()
                else:
                    self._handle(key.fileobj, events)
            if self.mode == "cut":
                for one in list(self._peers):
                    self._end(one, reset=True)
        for one in list(self._peers):
            self._end(one, reset=True)

    def _until_woken(self):
        with selectors.DefaultSelector() as only:
            only.register(self._woken, selectors.EVENT_READ)
            only.select(1)
        self._drain_wake()

    def _drain_wake(self):
        try:
            self._woken.recv(4096)
        except BlockingIOError:
            pass

    def _accept(self):
        try:
            client, _ = self._listener.accept()
        except OSError:
            return
        try:
            if self.mode == "cut":
                raise OSError
            server = socket.create_connection(self.target, timeout=2)
        except OSError:
            self._reset(client)
            return
        for one, peer in ((client, server), (server, client)):
            one.setblocking(False)
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._peers[one] = peer
            self._selector.register(one, selectors.EVENT_READ)

    def _handle(self, one, events):
        if one not in self._peers:  # It ended in this turn.
            return
        try:
            if events & selectors.EVENT_WRITE:
                self._write(one, self._waiting.pop(one, b""))
            if events & selectors.EVENT_READ:
                data = one.recv(CHUNK)
                if not data:
                    self._end(one)
                    return
                self._write(self._peers[one], data)
        except BlockingIOError:
            pass
        except OSError:
            self._end(one)

    def _write(self, one, data):
        try:
            data = data[one.send(data):]
        except BlockingIOError:
            pass
        if data:
            self._waiting[one] = data
        self._watch(one)
        self._watch(self._peers[one])

    def _watch(self, one):
        events = 0 if self._peers[one] in self._waiting else selectors.EVENT_READ
        if one in self._waiting:
            events |= selectors.EVENT_WRITE
        watched = one in self._selector.get_map()
        if events and watched:
            self._selector.modify(one, events)
        elif events:
            self._selector.register(one, events)
        elif watched:
            self._selector.unregister(one)

    def _end(self, one, reset=False):
        for each in (one, self._peers.get(one)):
            if each is None or self._peers.pop(each, None) is None:
                continue
            self._waiting.pop(each, None)
            if each in self._selector.get_map():
                self._selector.unregister(each)
            self._reset(each) if reset else each.close()

    @staticmethod
    def _reset(one):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()
