#!/usr/bin/env python3
"""Setting and getting one extended attribute of N bytes on many files, caches dropped before each; values of noise, so that
nothing is gained by compression. `set` ends when the last call returns, `sync` when all of that is on disk (syncfs, zpool sync).

Everything that is compared is measured round by round, in turn: what the machine does at one moment, and where the scheduler happens to put
client and server, must not fall on one of them alone. Dropped are the caches of what is stored; programs are read in again, or a server
that was started anew would wait for its own code and the one that does nothing would not."""

from common import EXAMPLES, SCRATCH, at_hand, begin, chart, each_peer_in_turn, evict, example, holding, set_and_get, size, zuse
import peers

TITLES = {
    "set": "setting one extended attribute per file",
    "sync": "setting it, until it is on disk",
    "get": "getting it, caches dropped",
}
SIZE = size()
SIZES = (1, 1024, 16384) if SIZE == "smoke" else (1, 32, 256, 1024, 4096, 16384)
ROUNDS = {"smoke": 1, "ci": 5, "full": 5}[SIZE]
# Of those that nothing is close to.
FEWER = {"smoke": 1, "ci": 3, "full": 3}[SIZE]


def files():
    """So many that what a mount does at first (its own code, the first blocks, finding out that it is asked in order) hardly counts:
    6 ms, 3 µs a file if these were 2,000."""
    return {"smoke": 200, "ci": 10_000, "full": 100_000}[SIZE]


def rounds_of(runs, what, result):
    runs.setdefault(what, []).append(result)
    if what == "set":
        runs.setdefault("sync", []).append({"seconds": result["synced"]})


def add(record, bytes_, column, runs):
    for what in ("set", "sync", "get"):
        if what in runs:
            record.add(f"{what} {bytes_}", column, runs[what], 100_000 / files(), files=files())


def of_library(record, bytes_, is_checked):
    count = files()
    cells = {"library sa": ("sa", "legacy"), "library sa auto": ("sa", "auto"), "library dir": ("dir", "legacy")}
    found = {column: {} for column in cells}
    for i in range(ROUNDS):
        for column, (place, dnodesize) in cells.items():
            image = SCRATCH / "library.img"
            words = ("--xattr", place, "--dnodesize", dnodesize)
            example("xattrs", "make", image, count, *words)
            for what in ("set", "get"):
                evict(image)
                at_hand(EXAMPLES / "xattrs")
                rounds_of(found[column], what, example("xattrs", what, image, count, bytes_, *words)[0])
            if i == ROUNDS - 1 and is_checked and dnodesize == "legacy":
                record.zdb(f"library {place} {bytes_}", image)
            image.unlink()
    for column, runs in found.items():
        add(record, bytes_, column, runs)


def through_mounts(record, bytes_, is_checked):
    count = files()
    dirs = max(2, count // 1000)

    def kind(name, **properties):
        made = zuse(name)
        made.properties = properties
        return made

    kinds = [(kind("mount sa", xattr="sa"), ROUNDS), (kind("mount dir", xattr="dir"), ROUNDS), (peers.NullFuse, ROUNDS), (peers.Xfs, FEWER)]
    if bytes_ <= 3000:
        kinds.append((peers.Ext4, FEWER))
    if SIZE == "full":
        kinds.append((peers.ZfsFuse, FEWER))
    # The values of all rounds stay; of a spill block two copies are written.
    kinds = [(holding(kind, n * count, 1536 + 3 * bytes_), n) for kind, n in kinds]
    found = {}

    def once(peer, folder, i):
        for what, result in set_and_get(peer, folder / f"t{i}", (count, dirs, bytes_)):
            rounds_of(found.setdefault(peer.name, {}), what, result)

    def last(peer):
        if isinstance(peer, peers.Zuse) and is_checked:
            record.zdb_of_peer(f"{peer.name} {bytes_}", peer)

    each_peer_in_turn(record, [k for k, _ in kinds], [n for _, n in kinds], once, last)
    for column, runs in found.items():
        add(record, bytes_, column, runs)


def main():
    record = begin("xattr", "one extended attribute per file", SIZE,
                   f"measured with {files():,} files, {ROUNDS} rounds in turn; shown for 100,000")
    # Values in the dnode, in the spill block, in the hidden directory.
    checked = (1, 1024, 16384) if SIZE != "full" else SIZES
    for bytes_ in SIZES:
        of_library(record, bytes_, bytes_ in checked)
        through_mounts(record, bytes_, bytes_ in checked)
    record.data["not_run"].setdefault("ext4 from 4096 on", "it holds one block of attributes a file")

    def part(what):
        return [row for row in (f"{what} {b}" for b in SIZES) if row in record.rows()]

    text = record.table([
        ("mount sa ÷ null-fuse", "mount sa", "null-fuse"),
        ("the same, medians", "mount sa", "null-fuse", "median"),
        ("mount sa ÷ dir", "mount sa", "mount dir"),
        ("library sa ÷ ext4", "library sa", "ext4"),
        ("library sa ÷ xfs", "library sa", "xfs"),
        ("library sa ÷ dir", "library sa", "library dir"),
        ("the same, medians", "library sa", "library dir", "median"),
    ])
    pictures = {
        f"-{what}": chart(record, TITLES[what], "seconds for 100,000 files, by bytes of the value", None, part(what), True,
                          [r.split()[1] for r in part(what)])
        for what in ("set", "sync", "get")
    }
    record.write(text, pictures)


main()
