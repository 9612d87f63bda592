#!/usr/bin/env python3
"""Making empty files with open(2), by files per directory, zap_micro_max_size and ibs. Not followed by a sync.

The library makes the same number of files at every size, in as many directories as that takes, its txgs' syncs included: what
one file costs must not depend on how many others are in its directory."""

from common import DRIVER, SCRATCH, begin, chart, each_peer, example, memory_at_hand, size, timed, zuse
import peers
from trees import COUNTS, HUGE, per_file, relative, settings

SIZE = size()
ROUNDS = {"smoke": 1, "ci": 2, "full": 3}[SIZE]
LIBRARY_ROUNDS = {"smoke": 1, "ci": 5, "full": 5}[SIZE]
# Files that the library makes at the least.
# As many at every size: how many txgs a run takes, and whether they are written beside it, must not differ between the rows.
LEAST = {"smoke": 2_047, "ci": 1_000_000, "full": 1_000_000}[SIZE]
# MiB that the host has given to this machine when the library begins.
AT_HAND = {"smoke": 64, "ci": 2_560, "full": 2_560}[SIZE]


def of_library(record):
    """All sizes and settings in turn, round by round: what the machine does at one moment must not fall on one of them alone."""
    cells = [(count, *setting) for count in COUNTS[SIZE] for setting in settings()]
    found = {cell: [] for cell in cells}
    for last in [False] * (LIBRARY_ROUNDS - 1) + [True]:
        for cell in cells:
            count, name, micro, ibs = cell
            image = SCRATCH / "tree.img"
            # What a million files and the image's pages in the host's cache take, and more.
            memory_at_hand(AT_HAND)
            size_of = ("--micro-max", micro, "--ibs", ibs, "--size", 16 << 10, "--cache", 512)
            found[cell].append(example("directories", "create", image, max(count, LEAST), count, *size_of)[0])
            if last and name == "1M/15":
                record.zdb(f"library {count:,} at {name}", image)
            image.unlink()
    for (count, name, _, _), runs in found.items():
        record.add(f"{count:,}", f"library {name}", runs, count / max(count, LEAST))


def main():
    record = begin("create", "making empty files", SIZE, f"columns are zap_micro_max_size/ibs; the library makes {LEAST:,} files or more, scaled to one directory, with {AT_HAND:,} MiB at hand")

    def through(name, count):
        def work(peer, folder):
            runs = []
            for i in range(ROUNDS):
                runs.append(timed(DRIVER, "create", folder / f"t{count}-{i}", count, 1, 0))
            record.add(f"{count:,}", f"{peer.name} {name}".strip(), runs)

        return work

    of_library(record)
    for count in COUNTS[SIZE]:
        row = f"{count:,}"
        for name, micro, ibs in settings():
            if count == HUGE and SIZE == "ci":
                continue
            kind = zuse("mount", zap_micro_max_size=micro, zfs_default_ibs=ibs)

            def and_zdb(peer, folder):
                through(name, count)(peer, folder)
                if name == "1M/15":
                    record.zdb_of_peer(f"mount {row} at {name}", peer)

            each_peer(record, [kind], and_zdb)
        if count == HUGE and SIZE == "ci":
            record.missing(f"{row} through the mounts", "minutes; --full measures it")
            continue
        each_peer(record, [peers.Ext4, peers.Xfs, peers.NullFuse] + ([peers.ZfsFuse] if SIZE == "full" else []), through("", count))
    least = f"{COUNTS[SIZE][0]:,}"
    text = "\n\n".join([
        record.table([("mount 128K/17 ÷ null-fuse", "mount 128K/17", "null-fuse"), ("library 128K/17 ÷ ext4", "library 128K/17", "ext4")]),
        per_file(record, "library", 1),
        per_file(record, "mount", 1),
        relative(record, "mount", (least, "mount 128K/17")),
        relative(record, "library", (least, "library 128K/17")),
    ])
    columns = ["library 128K/17", "library 1M/15", "mount 128K/17", "mount 1M/15", "ext4", "xfs", "null-fuse"]
    record.write(text, {"": chart(record, record.data["title"], "seconds, by files in the directory", columns, log=True)})


main()
