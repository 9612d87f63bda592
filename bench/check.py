#!/usr/bin/env python3
"""How fast every block of a pool is read and verified (`zdb -bcc`), compared with OpenZFS's zdb on the same pools.

    bench/check.py --ci       pools that hold 2 and 6 GiB: compare the slope between them, since OpenZFS's zdb takes seconds before it
                              begins
    bench/check.py --smoke    64 and 192 MiB, nothing is written down

ZUSE names the binary (target/release/zuse), ZDB OpenZFS's zdb (scripts/openzfs-oracle unpacks one). A pool's content, per GiB: 512 MiB of
noise and 384 MiB of words in 128 KiB records, 64 MiB of half compressible 8 KiB records, 20,000 files of 3 KiB. The pool files are in
the host's page cache; ours is the best of three runs, OpenZFS's zdb, which takes minutes, runs once after the first; both have to find the
same number of blocks and no fault.
Results: bench/results/check-ci.json. Needs no root; --ci needs 14 GB of disk.
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
RUNS = 3


def zuse(*words):
    subprocess.run([ZUSE, *words], check=True, stdout=subprocess.DEVNULL)


def write(path, size, seed, words):
    """Noise, or text of words that are made up, cut from one length of it at random places."""
    rng = random.Random(seed)
    vocabulary = [bytes(rng.choices(b"abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 11))) for _ in range(5000)]
    text = b" ".join(rng.choices(vocabulary, k=600_000)) if words else b""
    with open(path, "wb") as out:
        left = size
        while left:
            at = rng.randrange(len(text) // 2) if words else 0
            piece = text[at : at + (1 << 20)] if words else rng.randbytes(1 << 20)
            out.write(piece[:left])
            left -= min(left, len(piece))


def fill(work, pool, part, unit):
    """One GiB, or `unit` for it."""
    tree = work / "tree" / str(part)
    tree.mkdir(parents=True)
    write(tree / "noise", unit // 2, part, False)
    write(tree / "words", unit // 8 * 3, part, True)
    for n in range(20_000 * unit >> 30):
        (tree / f"small{n}").write_bytes(b"%d %d " % (part, n) * 300)
    zuse("cp", "-r", str(tree), f"{pool}:/")
    rng = random.Random(part)
    with open(work / "records", "wb") as out:
        for _ in range(unit // 16 >> 13):
            out.write(rng.randbytes(4096) + bytes(4096))
    zuse("cp", str(work / "records"), f"{pool}/records:/{part}")
    shutil.rmtree(tree)


def run(words):
    start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    text = done.stdout + done.stderr
    count = re.search(r"bp count:\s+(\d+)", text)
    if done.returncode or not count or "No leaks" not in text:
        sys.exit(f"{' '.join(words)}: status {done.returncode}\n{text[-2000:]}")
    return wall, cpu, int(count[1])


def measure(folder, pool, image):
    tools = {"zuse": [ZUSE, "zdb", "-e", "-p", str(folder), "-bcc", pool]}
    if ZDB:
        tools["zdb"] = [ZDB, "-e", "-p", str(folder), "-bcc", pool]
    subprocess.run(["cat", str(image)], stdout=subprocess.DEVNULL, check=True)
    out, blocks = {}, set()
    for turn in range(RUNS):
        for name, words in tools.items():
            if turn and name == "zdb":
                continue
            wall, cpu, found = run(words)
            blocks.add(found)
            best = out.setdefault(name, {"seconds": wall, "cpu_seconds": cpu})
            if wall < best["seconds"]:
                out[name] = {"seconds": wall, "cpu_seconds": cpu}
    if len(blocks) != 1:
        sys.exit(f"the tools count different numbers of blocks: {sorted(blocks)}")
    return {"blocks": blocks.pop(), "allocated": os.stat(image).st_blocks * 512, **out}


def main():
    if sys.argv[1:] not in (["--ci"], ["--smoke"]):
        sys.exit(f"usage: {sys.argv[0]} --ci|--smoke")
    size = sys.argv[1][2:]
    unit = {"smoke": 32 << 20, "ci": 1 << 30}[size]
    result = {"cpus": os.cpu_count(), "unit": unit}
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        work = pathlib.Path(folder)
        os.environ["XDG_STATE_HOME"] = str(work / "state")
        os.environ["ZUSE_HOST_LINGER"] = "0"
        pool, image = "checked", work / "pool" / "0.img"
        image.parent.mkdir()
        zuse("zpool", "create", "-m", "none", pool, str(image), "--size", str(max(8 * unit, 1 << 30)))
        zuse("zfs", "create", "-o", "recordsize=8K", f"{pool}/records")
        parts = 0
        for units in (2, 6):
            while parts < units:
                fill(work, pool, parts, unit)
                parts += 1
            zuse("zpool", "export", pool)
            result[f"{units} units"] = measure(image.parent, pool, image)
            zuse("--in", str(image.parent), "zpool", "import", pool)
        zuse("zpool", "destroy", pool)
    few, many = result["2 units"], result["6 units"]
    for name in ("zuse", "zdb"):
        if name not in many:
            continue
        more = many["allocated"] - few["allocated"]
        slope = {key: (many[name][key] - few[name][key]) / (more / (1 << 30)) for key in ("seconds", "cpu_seconds")}
        result[f"{name}, per GiB more"] = slope
    if ZDB:
        slopes = [result[f"{name}, per GiB more"]["seconds"] for name in ("zdb", "zuse")]
        result["zuse is faster by"] = slopes[0] / slopes[1]
    text = json.dumps(result, indent=1)
    if size != "smoke":
        (TOP / "bench" / "results").mkdir(exist_ok=True)
        (TOP / "bench" / "results" / f"check-{size}.json").write_text(text + "\n")
    print(text)


main()
