"""What the machine is, and who else used it while something was measured."""

import os
import pathlib
import time

BUSY_FIELDS = (0, 1, 2, 5, 6)  # user, nice, system, irq, softirq in /proc/stat
STEAL_FIELD = 7
QUIET_PCT = 10
LOOK_S = 0.3


def cpu_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return "unknown"


def core_times(proc_stat):
    """(busy, stolen) seconds of all cores together, from the text of /proc/stat."""
    ticks = [int(field) for field in proc_stat.split("\n", 1)[0].split()[1:]]
    tick_s = 1 / os.sysconf("SC_CLK_TCK")
    return sum(ticks[i] for i in BUSY_FIELDS) * tick_s, ticks[STEAL_FIELD] * tick_s


class LoadMeter:
    """Between its making and read(): what others took of the cores, in percent of all of them.

    own_cpu_s() is the processor time so far of what is measured.
    """

    def __init__(self, own_cpu_s):
        self._own_cpu_s = own_cpu_s
        self._begin = self._now()

    def _now(self):
        return time.monotonic(), *core_times(pathlib.Path("/proc/stat").read_text()), self._own_cpu_s()

    def read(self):
        elapsed_s, busy_s, steal_s, own_s = (end - begin for begin, end in zip(self._begin, self._now()))
        capacity_s = max(elapsed_s, 1e-9) * os.cpu_count()
        steal_pct = 100 * steal_s / capacity_s
        other_cpu_pct = max(0.0, 100 * (busy_s - own_s) / capacity_s)
        return {"disturbed_pct": round(steal_pct + other_cpu_pct, 1), "steal_pct": round(steal_pct, 1),
                "other_cpu_pct": round(other_cpu_pct, 1)}


def wait_until_quiet(limit_s):
    """Returns once others take little of the cores, or after `limit_s`. What is measured must not run."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        meter = LoadMeter(time.process_time)
        time.sleep(LOOK_S)
        if meter.read()["disturbed_pct"] < QUIET_PCT:
            return
