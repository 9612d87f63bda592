#!/usr/bin/env python3
"""`find . -name zzz` over directories of 1,800 files each, caches dropped, Zuse's block cache limited to 128 MB."""

from common import SCRATCH, begin, chart, driver, each_peer, evict, example, holding, size, timed, zuse
import peers
from find_export import export

FILES = 1800
SIZE = size()
DIRS = {"smoke": 5, "ci": 200, "full": 10_000}[SIZE]
ROUNDS = 1 if SIZE == "smoke" else 3


def main():
    record = begin("find", "find . -name zzz, caches dropped", SIZE, f"{DIRS:,} directories x {FILES:,} files, ARC 128 MB")
    row = f"{DIRS:,} x {FILES:,}"
    image = SCRATCH / "library.img"
    example("directories", "tree-make", image, DIRS, FILES, "--size", 24 << 10)
    runs = []
    for _ in range(ROUNDS):
        evict(image)
        runs.append(example("directories", "walk", image, "--cache", 128)[0])
    record.add(row, "zuse library", runs)

    export(image)  # the library leaves it active, and a mount takes no other host's pool

    def walk(peer, folder, make=True):
        if make:
            driver("create", folder / "t", DIRS * FILES, DIRS, 0)
        runs = []
        for _ in range(ROUNDS):
            peer.cold()
            runs.append(timed("find", ".", "-name", "zzz", cwd=peer.mount))
        record.add(row, peer.name, runs)

    # The mount walks the tree that the library made: the same objects, without the hours that making them by system calls takes.
    each_peer(record, [zuse("zuse mount", pool_image=image, zfs_arc_max="128M")], lambda p, f: walk(p, f, make=False))
    if export(image):
        record.zdb("the tree", image)
    else:
        record.no_zdb("the tree", "it could not be exported")
    image.unlink()
    kinds = [peers.Ext4, peers.Xfs, peers.NullFuse]
    if SIZE == "full":
        kinds.append(peers.ZfsFuse)
    else:
        record.missing("zfs-fuse", "making the files takes it minutes; --full measures it")
    each_peer(record, [holding(kind, DIRS * FILES) for kind in kinds], walk)
    record.write(record.table(), {"": chart(record, record.data["title"], f"seconds for {row} files")})


main()
