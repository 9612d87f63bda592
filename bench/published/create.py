#!/usr/bin/env python3
"""Making empty files with open(2), by files per directory, zap_micro_max_size and ibs. Not followed by a sync.

The library makes the same number of files at every size, in as many directories as that takes, its txgs' syncs included: what
one file costs must not depend on how many others are in its directory. So do the mounts and their peers, fewer of them: 2,047 files
take 60 ms, and 1.5 of that is a matter of chance. All cells of a size are measured round by round, in turn."""

import os

from common import SCRATCH, begin, chart, driver, each_peer_in_turn, example, holding, size, zuse
import peers
from trees import COUNTS, HUGE, per_file, relative, settings

SIZE = size()
ROUNDS = {"smoke": 1, "ci": 5, "full": 5}[SIZE]
# Through the mounts, of the most files in one directory.
HUGE_ROUNDS = 2
# Files that the library makes at the least.
# As many at every size: how many txgs a run takes must not differ between the rows.
LEAST = {"smoke": 2_047, "ci": 1_000_000, "full": 1_000_000}[SIZE]
# Files that the mounts and their peers make at the least: a second's work of the fastest of them.
MOUNTED = {"smoke": 4_094, "ci": 64_000, "full": 64_000}[SIZE]


def of_library(record):
    """All sizes and settings in turn, round by round: what the machine does at one moment must not fall on one of them alone."""
    cells = [(count, *setting) for count in COUNTS[SIZE] for setting in settings()]
    found = {cell: [] for cell in cells}
    for turn in range(ROUNDS):
        for cell in cells:
            count, name, micro, ibs = cell
            image = SCRATCH / "tree.img"
            size_of = ("--micro-max", micro, "--ibs", ibs, "--size", 16 << 10, "--cache", 512)
            found[cell].append(example("directories", "create", image, max(count, LEAST), count, *size_of)[0])
            if turn == 0 and name == "1M/15":
                record.zdb(f"library {count:,} at {name}", image)
            image.unlink()
    for (count, name, _, _), runs in found.items():
        record.add(f"{count:,}", f"library {name}", runs, count / max(count, LEAST))


def through_mounts(record, count):
    """The mounts of all settings, and their peers."""
    dirs = -(-MOUNTED // count)
    kinds = [zuse(f"mount {name}", zap_micro_max_size=micro, zfs_default_ibs=ibs) for name, micro, ibs in settings()]
    kinds += [peers.Ext4, peers.Xfs, peers.NullFuse] + ([peers.ZfsFuse] if SIZE == "full" else [])
    rounds = HUGE_ROUNDS if count == HUGE else ROUNDS
    kinds = [holding(kind, rounds * dirs * count) for kind in kinds]
    found = {}

    def once(peer, folder, i):
        found.setdefault(peer.name, []).append(driver("fill", folder / f"t{i}", dirs, count))
        # What one has still to write is not the next one's burden.
        if isinstance(peer, peers.Zuse):
            peer.zuse("zpool", "sync", peer.pool)
        os.sync()

    def last(peer):
        if peer.name == "mount 1M/15":
            record.zdb_of_peer(f"mount {count:,} at 1M/15", peer)

    each_peer_in_turn(record, kinds, [rounds] * len(kinds), once, last)
    for column, runs in found.items():
        record.add(f"{count:,}", column, runs, 1 / dirs)


def main():
    huge = f" ({HUGE:,} in one directory: of {HUGE_ROUNDS})" if SIZE == "full" else ""
    record = begin("create", "making empty files", SIZE,
                   f"columns are zap_micro_max_size/ibs; scaled to one directory: the library makes {LEAST:,} files or more, "
                   f"mounts and their peers {MOUNTED:,} or more; best of {ROUNDS}{huge}")
    of_library(record)
    for count in COUNTS[SIZE]:
        if count == HUGE and SIZE == "ci":
            record.missing(f"{count:,} through the mounts", "minutes; --full measures it")
            continue
        through_mounts(record, count)
    least = f"{COUNTS[SIZE][0]:,}"
    text = "\n\n".join([
        per_file(record, "library"),
        per_file(record, "mount", ("ext4", "xfs", "null-fuse", "zfs-fuse")),
        relative(record, "mount", (least, "mount 128K/17")),
    ])
    columns = ["library 128K/17", "library 1M/15", "mount 128K/17", "mount 1M/15", "ext4", "xfs", "null-fuse"]
    record.write(text, {"": chart(record, record.data["title"], "seconds, by files in the directory", columns, log=True)})


main()
