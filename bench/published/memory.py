#!/usr/bin/env python3
"""Memory of a mount's server after creating files that the kernel keeps in its caches: at the peak, and at rest. A FUSE server can't ask the
kernel to forget a file, so what a known file costs decides how large a server grows."""

import os
import time

from common import bars, begin, driver, each_peer, holding, size, zuse
import bench
import peers

SIZE = size()
FILES = {"smoke": 20_000, "ci": 500_000, "full": 2_000_000}[SIZE]
PER_DIRECTORY = 1_000
# Seconds without a question before the rest is read.
REST = {"smoke": 5, "ci": 60, "full": 300}[SIZE]


def resident(pids):
    """Resident memory of the processes now, in KiB."""
    pages = sum(int(open(f"/proc/{pid}/statm").read().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def main():
    record = begin("memory", "memory of a mount's server", SIZE, f"{FILES:,} empty files through the mount; at rest: {REST} s later")
    found = {}

    def grow(peer, folder):
        before = resident(peer.pids())
        run = driver("create", folder / "t", FILES, FILES // PER_DIRECTORY, 0)
        record.add("create", peer.name, [run])
        time.sleep(REST)
        found[peer.name] = {"start": before, "peak": bench.high_water(peer.pids()), "rest": resident(peer.pids())}

    kinds = [zuse("mount"), zuse("mount, zfs_arc_max=64M", zfs_arc_max="64M")]
    each_peer(record, [*(holding(kind, FILES) for kind in kinds), holding(peers.NullFuse, FILES)], grow)
    record.data["memory"] = found
    lines = ["| MiB | " + " | ".join(found) + " |", "|---|" + "---:|" * len(found)]
    for row in ("start", "peak", "rest"):
        lines.append(f"| {row} | " + " | ".join(f"{kib[row] / 1024:,.0f}" for kib in found.values()) + " |")
    series = {row: [kib[row] / 1024 for kib in found.values()] for row in ("peak", "rest")}
    record.write("\n".join(lines), {"": bars("resident memory", "MiB", list(found), series)})


main()
