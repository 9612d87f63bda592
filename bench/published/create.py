#!/usr/bin/env python3
"""Making empty files with open(2), by files per directory, zap_micro_max_size and ibs. Not followed by a sync.

The library makes the same number of files at every size, in as many directories as that takes, its txgs' syncs included: what
one file costs must not depend on how many others are in its directory. So do the mounts and their peers, fewer of them: 2,047 files
take 60 ms, and 1.5 of that is a matter of chance. All cells of a size are measured round by round, in turn."""

import os

from common import SCRATCH, begin, chart, driver, each_peer_in_turn, example, holding, memory_at_hand, nothing_is_reported, size, zuse
from idle import IDLE, Patience, watched
import peers
from trees import COUNTS, HUGE, per_file, relative, settings

SIZE = size()
ROUNDS = {"smoke": 1, "ci": 5, "full": 5}[SIZE]
# Through the mounts, of the most files in one directory.
HUGE_ROUNDS = 2
LIBRARY_ROUNDS = {"smoke": 1, "ci": 5, "full": 5}[SIZE]
# Minutes to wait in all until nobody else is on the processors' cores, before the library's runs; before those of the mounts a quarter of that.
PATIENCE = float(os.environ.get("ZUSE_BENCH_PATIENCE", {"smoke": 0, "ci": 15, "full": 60}[SIZE]))
# A cell that has so many runs has enough, however disturbed.
MOST_LIBRARY_ROUNDS = {"smoke": 1, "ci": 9, "full": 20}[SIZE]
# Files that the library makes at the least.
# As many at every size: how many txgs a run takes, and whether they are written beside it, must not differ between the rows.
LEAST = {"smoke": 2_047, "ci": 1_000_000, "full": 1_000_000}[SIZE]
# Files that the mounts and their peers make at the least: a second's work of the fastest of them.
MOUNTED = {"smoke": 4_094, "ci": 64_000, "full": 64_000}[SIZE]
# MiB that the host has given to this machine when a run begins.
AT_HAND = {"smoke": 64, "ci": 2_560, "full": 2_560}[SIZE]
MOUNT_AT_HAND = {"smoke": 16, "ci": 512, "full": 512}[SIZE]


def of_library(record):
    """All sizes and settings in turn, round by round: what the machine does at one moment must not fall on one of them alone. A cell is done with
    as many runs of an idle machine: which count is told by what others took meanwhile, not by how long they took."""
    cells = [(count, *setting) for count in COUNTS[SIZE] for setting in settings()]
    found = {cell: [] for cell in cells}
    patience = Patience(PATIENCE)

    def idle(cell):
        return [run for run in found[cell] if run["others"] <= IDLE]

    for turn in range(MOST_LIBRARY_ROUNDS):
        todo = [cell for cell in cells if len(idle(cell)) < LIBRARY_ROUNDS]
        if not todo:
            break
        for cell in todo:
            count, name, micro, ibs = cell
            image = SCRATCH / "tree.img"
            # What a million files and the image's pages in the host's cache take, and more.
            memory_at_hand(AT_HAND)
            patience.wait_until_idle()
            size_of = ("--micro-max", micro, "--ibs", ibs, "--size", 16 << 10, "--cache", 512)
            run, others = watched(lambda: example("directories", "create", image, max(count, LEAST), count, *size_of)[0])
            found[cell].append({**run, "others": others})
            if turn == 0 and name == "1M/15":
                record.zdb(f"library {count:,} at {name}", image)
            image.unlink()
        done = sum(len(idle(cell)) >= LIBRARY_ROUNDS for cell in cells)
        print(f"  round {turn + 1} of the library: {done} of {len(cells)} cells have their runs, {patience.left:.0f} s of patience left", flush=True)
    disturbed = most = 0
    for cell, runs in found.items():
        count, name, _, _ = cell
        # All that are of an idle machine, which are no more than that, and where there are fewer, those that others took least from.
        runs.sort(key=lambda run: run["others"])
        counted, left_out = runs[:LIBRARY_ROUNDS], runs[LIBRARY_ROUNDS:]
        disturbed += sum(run["others"] > IDLE for run in counted)
        most = max(most, counted[-1]["others"])
        record.add(f"{count:,}", f"library {name}", counted, count / max(count, LEAST), left_out=left_out)
    made = sum(map(len, found.values()))
    record.data["setting"] += (
        f"; the library's are the first runs from which others took {IDLE} of the processors at most: {made - len(cells) * LIBRARY_ROUNDS} of {made} "
        f"were left out, and {disturbed} counted from which more was taken, {most} at the most")


def through_mounts(record, count, patience):
    """The mounts of all settings, and their peers."""
    dirs = -(-MOUNTED // count)
    kinds = [zuse(f"mount {name}", zap_micro_max_size=micro, zfs_default_ibs=ibs) for name, micro, ibs in settings()]
    kinds += [peers.Ext4, peers.Xfs, peers.NullFuse] + ([peers.ZfsFuse] if SIZE == "full" else [])
    rounds = HUGE_ROUNDS if count == HUGE else ROUNDS
    kinds = [holding(kind, rounds * dirs * count) for kind in kinds]
    found = {}

    def once(peer, folder, i):
        memory_at_hand(MOUNT_AT_HAND)
        patience.wait_until_idle()
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
                   f"columns are zap_micro_max_size/ibs; scaled to one directory: the library makes {LEAST:,} files or more, with {AT_HAND:,} MiB at hand, "
                   f"best of {LIBRARY_ROUNDS}, mounts and their peers {MOUNTED:,} or more, best of {ROUNDS}{huge}")
    with nothing_is_reported():
        of_library(record)
        patience = Patience(PATIENCE / 4)
        for count in COUNTS[SIZE]:
            if count == HUGE and SIZE == "ci":
                record.missing(f"{count:,} through the mounts", "minutes; --full measures it")
                continue
            through_mounts(record, count, patience)
    least = f"{COUNTS[SIZE][0]:,}"
    text = "\n\n".join([
        record.table([
            ("mount 128K/17 ÷ null-fuse", "mount 128K/17", "null-fuse"),
            ("the same, medians", "mount 128K/17", "null-fuse", "median"),
            ("library 128K/17 ÷ ext4", "library 128K/17", "ext4"),
        ]),
        per_file(record, "library"),
        per_file(record, "mount", ("ext4", "xfs", "null-fuse", "zfs-fuse")),
        relative(record, "mount", (least, "mount 128K/17")),
        relative(record, "library", (least, "library 128K/17")),
    ])
    columns = ["library 128K/17", "library 1M/15", "mount 128K/17", "mount 1M/15", "ext4", "xfs", "null-fuse"]
    record.write(text, {"": chart(record, record.data["title"], "seconds, by files in the directory", columns, log=True)})


main()
