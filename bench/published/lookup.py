#!/usr/bin/env python3
"""A walk with the attributes of each file (what ftw(3) does), caches dropped, by files per directory, zap_micro_max_size and ibs."""

from common import DRIVER, SCRATCH, begin, chart, driver, each_peer, evict, example, holding, size, timed, zuse
import peers
from find_export import export
from trees import COUNTS, HUGE, relative, settings

SIZE = size()
ROUNDS = {"smoke": 1, "ci": 2, "full": 3}[SIZE]


def main():
    record = begin("lookup", "ftw walk with stat, caches dropped", SIZE, "one directory; columns are zap_micro_max_size/ibs")
    for count in COUNTS[SIZE]:
        row = f"{count:,}"
        for name, micro, ibs in settings():
            image = SCRATCH / "tree.img"
            example("directories", "tree-make", image, 1, count, "--micro-max", micro, "--ibs", ibs, "--size", 8 << 10)
            runs = []
            for _ in range(ROUNDS):
                evict(image)
                lines = example("directories", "lookup", image, "--cache", 512, "--lookups", 1)
                runs.append(next(line for line in lines if line["what"] == "ftw"))
            record.add(row, f"library {name}", runs)

            if count == HUGE and SIZE == "ci" and name != "1M/15":
                image.unlink()
                continue
            export(image)  # the library leaves it active, and a mount takes no other host's pool

            def walk(peer, _):
                runs = []
                for _ in range(ROUNDS):
                    peer.cold()
                    runs.append(timed(DRIVER, "list", peer.mount))
                record.add(row, f"{peer.name} {name}", runs)

            each_peer(record, [zuse("mount", pool_image=image)], walk)
            if count == 16_838 and micro == 131_072:
                each_peer(record, [zuse("uncached mount", pool_image=image, primarycache="none")], walk)
            if name == "1M/15" and count == COUNTS[SIZE][-1]:
                if export(image):
                    record.zdb(f"{row} at {name}", image)
                else:
                    record.no_zdb(f"{row} at {name}", "it could not be exported")
            image.unlink()

        def others(peer, folder):
            driver("create", folder / "t", count, 1, 0)
            runs = []
            for _ in range(ROUNDS):
                peer.cold()
                runs.append(timed(DRIVER, "list", peer.mount / "t"))
            record.add(row, peer.name, runs)

        if count == HUGE and SIZE == "ci":
            continue
        kinds = [peers.Ext4, peers.Xfs, peers.NullFuse] + ([peers.ZfsFuse] if SIZE == "full" else [])
        each_peer(record, [holding(kind, count) for kind in kinds], others)
    text = "\n\n".join([record.table(), relative(record, "mount", None), relative(record, "library", None), relative(record, "uncached mount", None)])
    columns = ["library 128K/17", "library 1M/15", "mount 128K/17", "mount 1M/15", "ext4", "xfs", "null-fuse"]
    record.write(text, {"": chart(record, record.data["title"], "seconds, by files in the directory", columns, log=True)})


main()
