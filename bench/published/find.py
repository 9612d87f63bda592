#!/usr/bin/env python3
"""`find . -name zzz` over directories of 1,800 files each, caches dropped, Zuse's block cache limited to 128 MB. Mounts take turns."""

from common import SCRATCH, begin, chart, driver, each_peer_in_turn, evict, example, holding, size, timed, zuse
import peers
from find_export import export

FILES = 1800
SIZE = size()
DIRS = {"smoke": 5, "ci": 200, "full": 10_000}[SIZE]
ROUNDS = 1 if SIZE == "smoke" else 3


def main():
    record = begin("find", "find . -name zzz, caches dropped", SIZE, f"{DIRS:,} directories x {FILES:,} files, ARC 128 MB, best of {ROUNDS}")
    row = f"{DIRS:,} x {FILES:,}"
    image = SCRATCH / "library.img"
    example("directories", "tree-make", image, DIRS, FILES, "--size", 24 << 10)
    runs = []
    for _ in range(ROUNDS):
        evict(image)
        runs.append(example("directories", "walk", image, "--cache", 128)[0])
    record.add(row, "zuse library", runs)

    export(image)  # the library leaves it active, and a mount takes no other host's pool
    found = {}

    def walk(peer, folder, i):
        # The mount walks the tree that the library made: the same objects, without the hours that making them by system calls takes.
        if i == 0 and not isinstance(peer, peers.Zuse):
            driver("create", folder / "t", DIRS * FILES, DIRS, 0)
        peer.cold()
        found.setdefault(peer.name, []).append(timed("find", ".", "-name", "zzz", cwd=peer.mount))

    kinds = [peers.Ext4, peers.Xfs, peers.NullFuse]
    if SIZE == "full":
        kinds.append(peers.ZfsFuse)
    else:
        record.missing("zfs-fuse", "making the files takes it minutes; --full measures it")
    kinds = [zuse("zuse mount", pool_image=image, zfs_arc_max="128M"), *(holding(kind, DIRS * FILES) for kind in kinds)]
    each_peer_in_turn(record, kinds, [ROUNDS] * len(kinds), walk, lambda peer: None)
    for column, runs in found.items():
        record.add(row, column, runs)
    if export(image):
        record.zdb("the tree", image)
    else:
        record.no_zdb("the tree", "it could not be exported")
    image.unlink()
    record.write(record.table(), {"": chart(record, record.data["title"], f"seconds for {row} files")})


main()
