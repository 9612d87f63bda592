#!/usr/bin/env python3
"""Setting and getting one extended attribute of N bytes on many files, caches dropped before each; values of noise, so that
nothing is gained by compression. `set` ends when the last call returns, `sync` when all of that is on disk (syncfs, zpool sync)."""

import time

from common import SCRATCH, begin, chart, driver, each_peer, evict, example, size, zuse
import peers

TITLES = {
    "set": "setting one extended attribute per file",
    "sync": "setting it, until it is on disk",
    "get": "getting it, caches dropped",
}
SIZE = size()
SIZES = (1, 1024, 65536) if SIZE == "smoke" else (1, 32, 256, 1024, 4096, 16384, 65536)
ROUNDS = {"smoke": 1, "ci": 2, "full": 3}[SIZE]


def files(bytes_):
    """So many that the largest values fit the disk and the time."""
    if SIZE == "smoke":
        return 200
    if SIZE == "full":
        return 100_000
    return 10_000 if bytes_ <= 4096 else 2_000


def main():
    counts = ", ".join(sorted({f"{files(b):,}" for b in SIZES}, key=len, reverse=True))
    record = begin("xattr", "one extended attribute per file", SIZE, f"measured with {counts} files, the fewer for the largest values; shown for 100,000")

    # Values in the dnode, in the spill block, in the hidden directory.
    checked = (1, 1024, 65536) if SIZE != "full" else SIZES

    def both(bytes_, column, once, rounds=ROUNDS):
        runs = {"set": [], "sync": [], "get": []}
        for _ in range(rounds):
            for what, result in once():
                runs[what].append(result)
                if what == "set":
                    runs["sync"].append({"seconds": result["synced"]})
        for what, found in runs.items():
            record.add(f"{what} {bytes_}", column, found, 100_000 / files(bytes_), files=files(bytes_))

    for bytes_ in SIZES:
        count = files(bytes_)
        for place, dnodesize in (("sa", "legacy"), ("sa", "auto"), ("dir", "legacy")):
            image = SCRATCH / "library.img"
            words = ("--xattr", place, "--dnodesize", dnodesize)

            def library():
                example("xattrs", "make", image, count, *words)
                for what in ("set", "get"):
                    evict(image)
                    yield what, example("xattrs", what, image, count, bytes_, *words)[0]

            column = f"library {place}" + (" auto" if dnodesize == "auto" else "")
            both(bytes_, column, library, 1 if dnodesize == "auto" and SIZE == "ci" else ROUNDS)
            if dnodesize == "legacy" and bytes_ in checked:
                record.zdb(f"library {place} {bytes_}", image)
            image.unlink()

        def mounted(peer, folder):
            def once():
                number = len(list(folder.glob("t*")))
                tree = folder / f"t{number}"
                driver("create", tree, count, max(2, count // 1000), 0)
                for what in ("set", "get"):
                    peer.cold()
                    words = (f"{what}xattr", tree, count, max(2, count // 1000), bytes_)
                    result = driver(*words)
                    if what == "set" and isinstance(peer, peers.Zuse):
                        start = time.perf_counter()  # FUSE does not pass syncfs on
                        peer.zuse("zpool", "sync", peer.pool)
                        result["synced"] += time.perf_counter() - start
                    yield what, result

            both(bytes_, peer.name, once, 1 if isinstance(peer, peers.Ext4) and SIZE == "ci" else ROUNDS)
            if isinstance(peer, peers.Zuse) and bytes_ in checked:
                record.zdb_of_peer(f"{peer.name} {bytes_}", peer)

        def kind(name, **properties):
            made = zuse(name)
            made.properties = properties
            return made

        kinds = [kind("mount sa", xattr="sa"), kind("mount dir", xattr="dir"), peers.NullFuse, peers.Xfs]
        if bytes_ <= 3000:
            kinds.append(peers.Ext4)
        if SIZE == "full":
            kinds.append(peers.ZfsFuse)
        each_peer(record, kinds, mounted)
    record.data["not_run"].setdefault("ext4 from 4096 on", "it holds one block of attributes a file")

    def part(what):
        record_rows = [f"{what} {b}" for b in SIZES]
        return [r for r in record_rows if r in record.rows()]

    text = record.table([
        ("mount sa ÷ null-fuse", "mount sa", "null-fuse"),
        ("library sa ÷ ext4", "library sa", "ext4"),
        ("library sa ÷ xfs", "library sa", "xfs"),
        ("library sa ÷ dir", "library sa", "library dir"),
    ])
    pictures = {
        f"-{what}": chart(record, TITLES[what], "seconds for 100,000 files, by bytes of the value", None, part(what), True,
                          [r.split()[1] for r in part(what)])
        for what in ("set", "sync", "get")
    }
    record.write(text, pictures)


main()
