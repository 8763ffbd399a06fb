"""Where a role's CPU goes: perf, if the machine has it, for some seconds beside the load."""
import pathlib
import shutil
import subprocess

TOP = 15
LEAST_PERCENT = 0.5


class Profile:
    """Begun at once; result() has shares in percent by thread, by library (the kernel's among
    them), and of the top functions."""

    def __init__(self, stage, role, seconds):
        self.data = stage.path(f"{role.name}.perf")
        self.text = stage.path(f"{role.name}.profile")
        self.process = None
        if shutil.which("perf"):
            self.process = subprocess.Popen(
                ["perf", "record", "-F", "199", "-g", "-o", self.data, "-p",
                 str(role.process.pid), "sleep", str(seconds)],
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def result(self):
        """None without perf."""
        if self.process is None or self.process.wait() != 0:
            return None
        pathlib.Path(self.text).write_bytes(self._report("overhead,dso,symbol"))
        return {"threads": self._table("comm"), "libraries": self._table("dso"),
                "functions": self._table("dso,symbol")[:TOP]}

    def _report(self, fields, *more):
        return subprocess.run(
            ["perf", "report", "-i", self.data, "--no-children", "--percent-limit",
             str(LEAST_PERCENT), "-F", fields, *more],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout

    def _table(self, fields):
        """[percent, field, ...] by share."""
        rows = []
        columns = fields.count(",") + 1
        flat = self._report(f"overhead,{fields}", "-g", "none").decode(errors="replace")
        for line in flat.splitlines():
            row = line.split(None, columns)
            if len(row) == columns + 1 and row[0].endswith("%"):
                rows.append([float(row[0][:-1]), *(field.strip()[:120] for field in row[1:])])
        return rows
