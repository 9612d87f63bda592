#!/usr/bin/env python3
"""Programs in turn at the attributes of xattr_many.py: two builds of `zuse` side by side, the other layout of one (`PROGRAM@dir`), another
environment (`PROGRAM%NAME=VALUE`), `null-fuse`. Each run has a pool of its own, so that rounds do not add up on the disk. It keeps nothing but
what it prints: for whoever changes the code.

  bench/published/xattr_turns.py set|both BYTES ROUNDS PROGRAM…    setting alone, or getting as well

FILES in the environment says how many (100,000), PERF the folder where `perf record` keeps a profile of each of the last round's runs
(PROGRAM.N.data, counted from 0), CALLS=1 with call graphs, EVENTS="-e sched:sched_waking" of something else than time.
"""

import os
import pathlib
import signal
import statistics
import subprocess
import sys

if len(sys.argv) < 5 or sys.argv[1] not in ("set", "both"):
    sys.exit(__doc__)
WHAT, BYTES, ROUNDS, PROGRAMS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
FILES = int(os.environ.get("FILES", 100_000))
PERF = os.environ.get("PERF")

from common import SCRATCH, begin, memory_at_hand, put_away, set_and_get, zuse  # noqa: E402
import peers  # noqa: E402


def kind(program):
    program, *changes = program.split("%")
    path, _, layout = program.partition("@")
    if "null" in pathlib.Path(path).name:
        made = type("Null", (peers.NullFuse,), {})
    else:
        made = zuse("zuse")
        made.properties = {"xattr": layout or "sa"}
        made.image_bytes = max(made.image_bytes, FILES * (1536 + 3 * BYTES))
    made.name = pathlib.Path(program).name
    made.binary = pathlib.Path(path).absolute()
    environment = made.environment
    made.environment = lambda self: environment(self) | dict(change.split("=", 1) for change in changes)
    return made


def main():
    begin("xattr-turns", "attributes in turn", "ci", "")  # holds the processors awake
    found = {}
    for i in range(ROUNDS):
        first = i % len(PROGRAMS)
        for program in PROGRAMS[first:] + PROGRAMS[:first]:
            peer = kind(program)(SCRATCH)
            folder = peer.start()
            perf = None

            def ready():
                nonlocal perf
                memory_at_hand(900 if BYTES <= 4096 else 3600)
                if PERF and i == ROUNDS - 1:
                    calls = ["-g"] if os.environ.get("CALLS") else []
                    kept = ["-o", f"{PERF}/{peer.name}.{len(os.listdir(PERF))}.data"]
                    perf = subprocess.Popen(["perf", "record", "-q", "-a", *os.environ.get("EVENTS", "-F 2500").split(), *calls, *kept])

            try:
                for what, result in set_and_get(peer, folder / "t", (FILES, max(2, FILES // 1000), BYTES), ready, True):
                    if perf:
                        perf.send_signal(signal.SIGINT)
                        perf.wait()
                        perf = None
                    found.setdefault((what, program), []).append(result["seconds"] / FILES * 1e6)
                    print(f"  {what} {peer.name} {result['seconds'] / FILES * 1e6:.1f} us, distances {result['distance']}", flush=True)
                    if WHAT == "set":
                        break
            finally:
                if perf:
                    perf.kill()
                put_away(peer)
    for (what, program), runs in sorted(found.items()):
        print(f"{what:3} {min(runs):6.1f} / {statistics.median(runs):6.1f}  {pathlib.Path(program).name}", flush=True)


main()
