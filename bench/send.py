#!/usr/bin/env python3
"""How fast streams are made and taken, beside OpenZFS's `zdb -B` on the same pool and beside `cat` of the pool's file.

    bench/send.py --ci       200,000 blocks of 2 KB, 256 MB of 128 KB blocks
    bench/send.py --full     4,000,000 blocks of 2 KB, 4 GB of 128 KB blocks

ZUSE names the binary (target/release/zuse), ZDB OpenZFS's zdb. The pool files are in the host's page cache when the clock starts;
each figure is the best of three runs, CPU seconds are those of the same run. Results: bench/results/send-SIZE.json. Needs no root.
What a send leaves in the cache is not timed: a test counts it (`a_send_leaves_the_cache_as_it_was`).
"""

import json
import os
import pathlib
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parent.parent
ZUSE = os.environ.get("ZUSE", str(TOP / "target" / "release" / "zuse"))
ZDB = os.environ.get("ZDB") or shutil.which("zdb")


def timed(words, source=None, runs=3, before=None):
    """The best of some runs: wall and CPU seconds."""
    best = None
    for _ in range(runs):
        if before:
            before()
        stdin = open(source, "rb") if source else subprocess.DEVNULL
        a, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(words, stdin=stdin, stdout=open(os.devnull, "wb"), stderr=subprocess.PIPE)
        wall, b = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        if done.returncode:
            return {"failed": done.stderr.decode(errors="replace")[-500:]}
        cpu = b.ru_utime + b.ru_stime - a.ru_utime - a.ru_stime
        if best is None or wall < best["seconds"]:
            best = {"seconds": wall, "cpu_seconds": cpu}
    return best


def zuse(*words):
    subprocess.run([ZUSE, *words], check=True, stdout=subprocess.DEVNULL)


def write_file(path, blocks, size):
    """Blocks of which half can be compressed away."""
    rng = random.Random(1)
    with open(path, "wb") as out:
        for _ in range(blocks):
            out.write(rng.randbytes(size // 2) + bytes(size - size // 2))


def rates(result, blocks, size):
    if "seconds" in result:
        result["blocks_per_second"] = round(blocks / result["seconds"])
        result["bytes_per_second"] = round(blocks * size / result["seconds"])
    return result


def measure(work, name, blocks, size, label):
    pool_dir, data, stream = work / name, work / "data", work / f"{name}.zs"
    pool_dir.mkdir()
    image = pool_dir / "0.img"
    with open(image, "wb") as file:
        file.truncate(max(1 << 30, 4 * blocks * size))
    write_file(data, blocks, size)
    zuse("zpool", "create", name, str(image))
    zuse("zfs", "create", "-o", f"recordsize={label}", "-o", "compression=lz4", f"{name}/d")
    zuse("cp", str(data), f"{name}/d:/")
    zuse("zfs", "snapshot", f"{name}/d@s")
    data.unlink()
    with open(stream, "wb") as out:
        subprocess.run([ZUSE, "zfs", "send", "-c", f"{name}/d@s"], check=True, stdout=out)
    stored = os.stat(stream).st_size
    subprocess.run(["cat", str(image)], stdout=subprocess.DEVNULL, check=True)
    out = {"blocks": blocks, "block_size": size, "stream_bytes": stored}
    out["send -c"] = rates(timed([ZUSE, "zfs", "send", "-c", f"{name}/d@s"]), blocks, size)
    out["send"] = rates(timed([ZUSE, "zfs", "send", f"{name}/d@s"]), blocks, size)
    out["cat of as many bytes"] = rates(timed(["head", "-c", str(stored), str(stream)]), blocks, size)
    zuse("zpool", "export", name)
    if ZDB:
        listed = subprocess.run([ZDB, "-e", "-p", str(pool_dir), "-d", name], capture_output=True, text=True).stdout
        found = re.search(rf"Dataset {name}/d@s \[ZPL\], ID (\d+)", listed)
        if found:
            words = [ZDB, "-e", "-p", str(pool_dir), "-B", f"{name}/{found[1]}", "c"]
            out["zdb -B c"] = rates(timed(words), blocks, size)
    zuse("--in", str(pool_dir), "zpool", "import", name)
    count = iter(range(100))

    def gone():
        n = next(count)
        if n:
            zuse("zfs", "destroy", "-r", f"{name}/r")

    out["receive"] = rates(timed([ZUSE, "zfs", "receive", f"{name}/r"], source=stream, before=gone), blocks, size)
    zuse("zpool", "export", name)
    shutil.rmtree(pool_dir)
    stream.unlink()
    return out


def main():
    if sys.argv[1:] not in (["--ci"], ["--full"], ["--smoke"]):
        sys.exit(f"usage: {sys.argv[0]} --ci|--full")
    size = sys.argv[1][2:]
    small, large = {"smoke": (5_000, 64), "ci": (200_000, 2_048), "full": (4_000_000, 32_768)}[size]
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        work = pathlib.Path(folder)
        os.environ["XDG_STATE_HOME"] = str(work / "state")
        result = {
            "cpus": os.cpu_count(),
            "2K": measure(work, "sendsmall", small, 2048, "2K"),
            "128K": measure(work, "sendlarge", large, 131072, "128K"),
        }
    out = TOP / "bench" / "results" / f"send-{size}.json"
    out.parent.mkdir(exist_ok=True)
    text = json.dumps(result, indent=1)
    if size != "smoke":
        out.write_text(text + "\n")
    print(text)


main()
