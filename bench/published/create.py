#!/usr/bin/env python3
"""Making empty files in one directory with open(2), by number of files, zap_micro_max_size and ibs. Not followed by a sync."""

import peers
from common import DRIVER, SCRATCH, begin, chart, each_peer, example, size, timed, zdb_says, zuse
from find_export import export
from trees import COUNTS, relative, settings

SIZE = size()
ROUNDS = 1 if SIZE == "smoke" else 3


def main():
    record = begin("create", "making empty files in one directory", SIZE, "columns are zap_micro_max_size/ibs")

    def through(name, count):
        def work(peer, folder):
            runs = []
            for i in range(ROUNDS):
                runs.append(timed(DRIVER, "create", folder / f"t{count}-{i}", count, 1, 0))
            record.add(f"{count:,}", f"{peer.name} {name}".strip(), runs)

        return work

    for count in COUNTS[SIZE]:
        for name, micro, ibs in settings():
            image = SCRATCH / "tree.img"
            size_of = ("--micro-max", micro, "--ibs", ibs, "--size", 8 << 10)
            runs = [example("directories", "create", image, count, count, *size_of)[0] for _ in range(ROUNDS)]
            record.add(f"{count:,}", f"library {name}", runs)
            if count == COUNTS[SIZE][-1]:
                record.zdb(f"library {name}", zdb_says(image, "tank") if export(image) else "it could not be exported")
            image.unlink()
            kind = zuse("mount", zap_micro_max_size=micro, zfs_default_ibs=ibs)

            def and_zdb(peer, folder):
                through(name, count)(peer, folder)
                if count == COUNTS[SIZE][-1]:
                    record.zdb(f"mount {name}", peer.sound())

            each_peer(record, [kind], and_zdb)
        each_peer(record, [peers.Ext4, peers.Xfs, peers.NullFuse] + ([peers.ZfsFuse] if SIZE == "full" else []), through("", count))
    least = f"{COUNTS[SIZE][0]:,}"
    text = "\n\n".join([
        record.table(),
        relative(record, "mount", (least, "mount 128K/17")),
        relative(record, "library", (least, "library 128K/17")),
    ])
    columns = ["library 128K/17", "library 1M/15", "mount 128K/17", "mount 1M/15", "ext4", "xfs", "null-fuse"]
    record.write(text, {"": chart(record, record.data["title"], "seconds, by files in the directory", columns, log=True)})


main()
