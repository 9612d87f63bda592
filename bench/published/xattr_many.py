#!/usr/bin/env python3
"""Setting and getting one extended attribute on as many files as were published, 100,000, through the mount (attributes in the dnode and its spill
block, and in hidden directories) and through the server that does nothing: what does not fit into memory is written while more is set. Round by round in turn, as `xattr.py` does it; writes
bench/results/xattr-many.json, with the distance of the two processors before and after each run: they are to be compared where it was short, and with
what the disk alone takes to read as many bytes as there are in the values, right after each `get`: null-fuse, which reads nothing, can be faster than that.

  bench/published/run.sh --ci xattr          (builds everything)
  python3 bench/published/xattr_many.py --ci 256 4096 16384    minutes a size, 4 GB of disk a round at 16 KiB
"""

import concurrent.futures
import ctypes
import json
import mmap
import os
import statistics
import sys
import time

SIZES = [int(word) for word in sys.argv[1:] if word.isdigit()] or [256, 4096, 16384]
sys.argv = [word for word in sys.argv if not word.isdigit()]

from common import NEAR, RESULTS, SCRATCH, begin, each_peer_in_turn, holding, memory_at_hand, set_and_get, size, zuse  # noqa: E402
import peers  # noqa: E402

SMOKE = size() == "smoke"
FILES = 1_000 if SMOKE else 100_000
ROUNDS = 1 if SMOKE else 5


def begins_anew(bytes_):
    """Whether each round has a pool of its own: five of 64 KiB are 33 GB of disk, for each layout."""
    return bytes_ > 16384


def disk_alone(image, most=1 << 30, piece=1 << 20):
    """Microseconds for a byte of the image, read in whole pieces around the host's cache: the quickest of as many threads as the pool has, two and
    one, each at `most` bytes of its own, into huge pages (64 to 72 us for 64 KiB in small ones, 26 to 29 in these). None if it holds too little to tell."""
    descriptor = os.open(image, os.O_RDONLY | os.O_DIRECT)
    try:
        places, at, end = [], 0, os.fstat(descriptor).st_size
        while at < end and len(places) * piece < 3 * most:
            try:
                at = os.lseek(descriptor, at, os.SEEK_DATA)
                hole = os.lseek(descriptor, at, os.SEEK_HOLE)
            except OSError:  # no data behind that
                break
            places += range(-(-at // piece) * piece, hole - piece + 1, piece)
            at = hole
        each = min(len(places) // 3, most // piece)
        if each < 32:
            return None

        def read(mine, room):
            for place in mine:
                os.preadv(descriptor, [room], place)

        def seconds(threads, mine):
            huge = 2 * piece
            # Shared memory, which is what it would be otherwise, has small pages.
            with mmap.mmap(-1, (threads + 1) * huge, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
                memory.madvise(mmap.MADV_HUGEPAGE)
                view = memoryview(memory)
                lead = -ctypes.addressof(ctypes.c_char.from_buffer(memory)) % huge
                rooms = [view[lead + i * huge : lead + i * huge + piece] for i in range(threads)]
                for room in rooms:
                    room[:] = bytes(piece)
                start = time.perf_counter()
                with concurrent.futures.ThreadPoolExecutor(threads) as pool:
                    list(pool.map(read, [mine[i::threads] for i in range(threads)], rooms))
                passed = time.perf_counter() - start
                for room in rooms:
                    room.release()
                view.release()
                return passed

        return min(seconds(threads, places[i * each : (i + 1) * each]) for i, threads in enumerate((6, 2, 1))) * 1e6 / (each * piece)
    finally:
        os.close(descriptor)


def quotient(runs, other, of=min):
    best = {name: of(seconds) for name, seconds in runs.items()}
    return best["mount sa"] / best[other]


def of_near(runs, distances):
    """Those runs before and after which the processors were near each other (`common.distance`), if every kind had one."""

    def those(name):
        return [seconds for seconds, ends in zip(runs[name], distances[name]) if all(ns is not None and ns < NEAR for ns in ends)]

    near = {name: those(name) for name in runs}
    return near if all(near.values()) else None


def main():
    record = begin("xattr-many", "one extended attribute per file, many files", "ci", f"{FILES:,} files, {ROUNDS} rounds in turn, of 64 KiB with new pools")
    record.data["microseconds"] = {}
    record.data["distances"] = {}
    record.data["disk"] = {}

    def mount(place):
        kind = zuse(f"mount {place}")
        kind.properties = {"xattr": place}
        return kind

    for bytes_ in SIZES:
        found = {"set": {}, "get": {}}
        distances = {"set": {}, "get": {}}
        disk = []

        def take_memory():
            # Small values: as much as can be free without the host being told of it meanwhile. Large ones need more, to be read above all
            # (the image's pages in the host's cache): with 900 MiB at hand `get` of 16 KiB took 40 us, with 2 GiB 26 to 32.
            memory_at_hand(16 if SMOKE else 900 if bytes_ <= 4096 else 3600)

        def once(peer, folder, i):
            if i and begins_anew(bytes_):
                folder = peer.start()
            for what, result in set_and_get(peer, folder / f"t{i}", (FILES, max(2, FILES // 1000), bytes_), take_memory, not SMOKE):
                found[what].setdefault(peer.name, []).append(result["seconds"] / FILES * 1e6)
                distances[what].setdefault(peer.name, []).append(result["distance"])
            if isinstance(peer, peers.Zuse):
                peer.cold()
                each = disk_alone(peer.image)
                disk.append(each and each * bytes_)

        def last(peer):
            if isinstance(peer, peers.Zuse):
                record.zdb_of_peer(f"{peer.name} {bytes_}", peer)

        pools = 1 if begins_anew(bytes_) else ROUNDS
        mounts = [holding(mount(place), pools * FILES, 1536 + 3 * bytes_) for place in ("sa", "dir")]
        each_peer_in_turn(record, [*mounts, peers.NullFuse], [ROUNDS] * 3, once, last)
        record.data["microseconds"][bytes_] = found
        record.data["distances"][bytes_] = distances
        record.data["disk"][bytes_] = disk
        for what, runs in found.items():
            times = {name: [round(t, 1) for t in seconds] for name, seconds in runs.items()}
            for which, some in (("all", runs), ("processors near", of_near(runs, distances[what]))):
                quotients = ", ".join(
                    f"{quotient(some, other):.2f} of {other} ({quotient(some, other, statistics.median):.2f})" for other in ("null-fuse", "mount dir")
                ) if some else "not every kind had such a run"
                print(f"  {what} {bytes_}, {which}: by the best (middle) runs {quotients}", flush=True)
            print(f"    us a file {times}, distances {distances[what]}", flush=True)
        if all(disk):
            print(f"    the disk alone {[round(t, 1) for t in disk]} us for {bytes_} bytes", flush=True)

    def keep():
        ((SCRATCH if SMOKE else RESULTS) / "xattr-many.json").write_text(json.dumps(record.data, indent=1) + "\n")

    keep()  # what took an hour to measure, should zdb be ended
    record.ask_zdb()
    keep()


main()
