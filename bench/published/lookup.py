#!/usr/bin/env python3
"""A walk with the attributes of each file (what ftw(3) does), caches dropped, by files per directory, zap_micro_max_size and ibs. All
settings and peers of a size take turns."""

from common import DRIVER, SCRATCH, begin, chart, driver, each_peer_in_turn, evict, example, holding, size, timed, zuse
import peers
from find_export import export
from trees import COUNTS, HUGE, relative, settings

SIZE = size()
ROUNDS = {"smoke": 1, "ci": 2, "full": 3}[SIZE]
# Of this many files the walk without a cache is measured too.
UNCACHED = 16_838


def of_library(record, count, images):
    """Makes the trees, walks them, and exports them: a mount takes no other host's pool."""
    found = {name: [] for name in images}
    for name, micro, ibs in settings():
        example("directories", "tree-make", images[name], 1, count, "--micro-max", micro, "--ibs", ibs, "--size", 8 << 10)
    for _ in range(ROUNDS):
        for name, image in images.items():
            evict(image)
            lines = example("directories", "lookup", image, "--cache", 512, "--lookups", 1)
            found[name].append(next(line for line in lines if line["what"] == "ftw"))
    for name, runs in found.items():
        record.add(f"{count:,}", f"library {name}", runs)
        export(images[name])


def through_mounts(record, count, images):
    is_long = count == HUGE and SIZE == "ci"
    kinds = [zuse(f"mount {name}", pool_image=image) for name, image in images.items() if not is_long or name == "1M/15"]
    if not is_long:
        others = [peers.Ext4, peers.Xfs, peers.NullFuse] + ([peers.ZfsFuse] if SIZE == "full" else [])
        kinds += [holding(kind, count) for kind in others]
    in_turn(record, count, kinds)
    if count == UNCACHED:
        in_turn(record, count, [
            zuse(f"uncached mount {name}", pool_image=images[name], primarycache="none") for name in images if name.startswith("128K")])


def in_turn(record, count, kinds):
    found = {}

    def walk(peer, folder, i):
        if i == 0 and not isinstance(peer, peers.Zuse):
            driver("create", folder / "t", count, 1, 0)
        peer.cold()
        tree = peer.mount if isinstance(peer, peers.Zuse) else peer.mount / "t"
        found.setdefault(peer.name, []).append(timed(DRIVER, "list", tree))

    each_peer_in_turn(record, kinds, [ROUNDS] * len(kinds), walk, lambda peer: None)
    for column, runs in found.items():
        record.add(f"{count:,}", column, runs)


def main():
    record = begin("lookup", "ftw walk with stat, caches dropped", SIZE, f"one directory; columns are zap_micro_max_size/ibs; best of {ROUNDS}")
    for count in COUNTS[SIZE]:
        images = {name: SCRATCH / f"tree-{i}.img" for i, (name, _, _) in enumerate(settings())}
        of_library(record, count, images)
        through_mounts(record, count, images)
        if count == COUNTS[SIZE][-1]:
            what = f"{count:,} at 1M/15"
            if export(images["1M/15"]):
                record.zdb(what, images["1M/15"])
            else:
                record.no_zdb(what, "it could not be exported")
        for image in images.values():
            image.unlink()
    text = "\n\n".join([record.table(), relative(record, "mount", None)])
    columns = ["library 128K/17", "library 1M/15", "mount 128K/17", "mount 1M/15", "ext4", "xfs", "null-fuse"]
    record.write(text, {"": chart(record, record.data["title"], "seconds, by files in the directory", columns, log=True)})


main()
