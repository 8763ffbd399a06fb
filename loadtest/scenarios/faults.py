"""What can go wrong around a worker: the disk under its state, the network to the broker."""
import errno
import os
import subprocess

from relay import Relay
from stage import Failure


class SmallDisk:
    """A tmpfs that can be filled; only root may mount one."""

    @staticmethod
    def possible():
        return os.geteuid() == 0

    def __init__(self, directory, megabytes):
        self.directory = directory
        if os.path.ismount(directory):  # An earlier run was killed.
            subprocess.run(["umount", directory], check=True)
        os.makedirs(directory, exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs",
                               directory], capture_output=True, text=True)
        if done.returncode != 0:
            raise Failure(f"mount: {done.stderr}")
        self._filler = os.path.join(directory, "filler")

    def fill(self):
        """To the last byte."""
        with open(self._filler, "ab", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        file.write(b"\0" * size)
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise

    def free(self):
        try:
            os.unlink(self._filler)
        except FileNotFoundError:
            pass

    def remove(self):
        subprocess.run(["umount", self.directory], check=True)


def relay_of(stack):
    """A relay before the broker's second listener; None when the stack has none. A process that
    is given relay.brokers reaches the broker through it alone."""
    behind, port = (stack.env.get(f"STACK_KAFKA_{name}_PORT") for name in ("BEHIND", "RELAY"))
    if not behind or not port:
        return None
    try:
        relay = Relay(int(port), int(behind))
    except OSError as error:
        raise Failure(f"the relay's port {port}: {error}") from None
    relay.brokers = f"127.0.0.1:{port}"
    return relay
