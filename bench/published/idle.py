"""Whether a machine is idle, as a bench must have it: what others take from its processors, seen beside whoever is measured.

A virtual machine's host lends out the processors. What it takes from a run as a whole it tells (`steal`). That it runs somebody else on the other
half of a core it does not tell: short work that keeps a core's units busy, asked for each 5 ms on every processor (`bench-driver beside`), takes up to
twice as long then. Of 160 runs that make a million files with the library, 1.6 to 3.2 s each, the time went with that by a correlation of 0.88, with
`steal` by 0.52, and lay 14 % around its cell's mean (one standard deviation).
"""

import json
import os
import statistics
import subprocess
import time

from peers import BUILT

DRIVER = BUILT / "release" / "bench-driver"
# What others may take from an idle machine: how much longer the work beside took than where nobody was, with the share of the processors' time
# that was stolen.
IDLE = 0.2
# Seconds of a look at who is there.
PROBE = 0.3
# The fastest answer of each processor in each look and run, microseconds: beside busy neighbours, too, some moments are without them.
alone = []


def stolen():
    """Seconds of all processors that a virtual machine's host took since the machine began (`steal`)."""
    with open("/proc/stat") as file:
        words = file.readline().split()
    return int(words[8]) / os.sysconf("SC_CLK_TCK") if len(words) > 8 else 0.0


def watched(once):
    """What `once` gives, and what others took meanwhile: 0 is nothing, 1 is that work beside it took twice as long, or all of the time."""
    before, start = stolen(), time.perf_counter()
    with subprocess.Popen([DRIVER, "beside"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as beside:
        try:
            result = once()
        finally:
            seconds = (time.perf_counter() - start) * (os.cpu_count() or 1)
            share = (stolen() - before) / seconds
            answers = [json.loads(line) for line in beside.communicate()[0].splitlines()]
    alone.extend(answer["least"] for answer in answers)
    slower = statistics.mean(answer["mean"] for answer in answers) / statistics.median(alone) - 1
    return result, round(slower + share, 3)


class Patience:
    """So many minutes in all to wait for an idle machine."""

    def __init__(self, minutes):
        self.left = minutes * 60

    def wait_until_idle(self):
        """Waits until the machine is idle, or as long as there is patience for."""
        start = time.monotonic()
        while self.left > time.monotonic() - start and watched(lambda: time.sleep(PROBE))[1] > IDLE:
            pass
        self.left = max(self.left - (time.monotonic() - start), 0)
