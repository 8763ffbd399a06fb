"""Where a role's CPU goes: perf, if the machine has it, for some seconds beside the load."""
import pathlib
import shutil
import subprocess

TOP = 15
LEAST_PERCENT = 0.5


class Profile:
    """Begun at once; result() has the top functions as [percent, library, function]."""

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
        report = ["perf", "report", "-i", self.data, "--no-children", "--percent-limit",
                  str(LEAST_PERCENT), "-F", "overhead,dso,symbol"]
        whole = subprocess.run(report, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        pathlib.Path(self.text).write_bytes(whole.stdout)
        flat = subprocess.run([*report, "-g", "none"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL).stdout.decode(errors="replace")
        top = []
        for line in flat.splitlines():
            fields = line.split(None, 2)
            if len(fields) == 3 and fields[0].endswith("%"):
                top.append([float(fields[0][:-1]), fields[1], fields[2].strip()[:120]])
        return top[:TOP]
