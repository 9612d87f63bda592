#!/usr/bin/env python3
"""What a server can be at all that has the values of attributes on this disk: the one that does nothing, with the least beside it. For `get` it
reads values from a file, 1 MiB at a time, around the host's cache and ahead, and sums them; for `set` it keeps them in as much memory as
Zuse's cache lends and sums and writes the rest (`null-fuse --values --keep`). It has no dnodes, no directories, nothing to look for. Round by
round in turn with the mount and the server that does nothing; writes bench/results/xattr-floor.json.

  bench/published/run.sh --ci xattr                          (builds everything)
  python3 bench/published/xattr_floor.py --ci 10000x65536    files and bytes; three minutes
"""

import json
import os
import statistics
import sys

GIVEN = [tuple(map(int, word.split("x"))) for word in sys.argv[1:] if word[0].isdigit()]
sys.argv = [word for word in sys.argv if not word[0].isdigit()]

from common import RESULTS, SCRATCH, begin, each_peer_in_turn, holding, memory_at_hand, set_and_get, size, zuse  # noqa: E402
import peers  # noqa: E402

SMOKE = size() == "smoke"
CELLS = [(500, 65536)] if SMOKE else GIVEN or [(10_000, 65536), (100_000, 16384)]
MIB = 1 << 20


def rounds(files):
    return 1 if SMOKE else 5 if files <= 10_000 else 3


def floor(threads, files, bytes_):
    """A server whose values come from a file of noise and go to another one."""

    class Floor(peers.NullFuse):
        name = f"floor, {threads} threads"

        def start(self):
            self.fresh()
            self.scratch.mkdir(parents=True, exist_ok=True)
            for name in ("values", "kept"):
                with open(self.scratch / name, "wb") as file:
                    for _ in range(-(-files * bytes_ // MIB)):
                        file.write(os.urandom(MIB))
                    os.fsync(file.fileno())
            self.attach()
            return self.mount

        def command(self):
            ways = ["--values", self.scratch / "values", "--keep", self.scratch / "kept"]
            return [self.binary, *ways, "--io-threads", threads, self.mount]

    return Floor


def main():
    record = begin("xattr-floor", "the floor of attributes on a disk", "ci", "round by round in turn")
    cells = record.data["microseconds"] = {}
    mount = zuse("mount sa")
    mount.properties = {"xattr": "sa"}
    for files, bytes_ in CELLS:
        found = {"set": {}, "get": {}}

        def take_memory():
            # As for the tables of 10,000 files and of 100,000.
            memory_at_hand(16 if SMOKE else 900 if files <= 10_000 else 3600)

        def once(peer, folder, i):
            cell = (files, max(2, files // 1000), bytes_)
            for what, result in set_and_get(peer, folder / f"t{i}", cell, take_memory, not SMOKE):
                found[what].setdefault(peer.name, []).append(result["seconds"] / files * 1e6)

        def last(peer):
            if isinstance(peer, peers.Zuse):
                record.zdb_of_peer(f"{peer.name} {bytes_}", peer)

        kinds = [holding(mount, rounds(files) * files, 1536 + 3 * bytes_), peers.NullFuse, floor(2, files, bytes_), floor(4, files, bytes_)]
        each_peer_in_turn(record, kinds, [rounds(files)] * len(kinds), once, last)
        cells[f"{files}x{bytes_}"] = found
        for what, runs in found.items():
            null = runs["null-fuse"]
            for name, times in runs.items():
                best, middle = min(times) / min(null), statistics.median(times) / statistics.median(null)
                print(f"  {what} {bytes_} {name}: {best:.2f} of null-fuse, middle {middle:.2f}; us {[round(t, 1) for t in times]}", flush=True)
    record.ask_zdb()
    ((SCRATCH if SMOKE else RESULTS) / "xattr-floor.json").write_text(json.dumps(record.data, indent=1) + "\n")


main()
