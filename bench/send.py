#!/usr/bin/env python3
"""How fast streams are sent and received, compared with OpenZFS's `zdb -B` on the same pool, and with reading as many bytes of the
pool's file as the stream has.

    bench/send.py --ci       200,000 blocks of 2 KB, 256 MB of 128 KB blocks
    bench/send.py --full     4,000,000 blocks of 2 KB, 4 GB of 128 KB blocks

ZUSE names the binary (target/release/zuse), ZDB OpenZFS's zdb. The pool files are in the host's page cache when the clock starts;
each figure is the best of three runs, CPU seconds are those of the same run. Results: bench/results/send-SIZE.json.

Beside them: zfs-fuse (as root, where it is installed; its daemon's CPU seconds); the hit rate of a working set that a mount keeps in its
cache, before and after a send of ten times the cache, with the bypass and without (needs /dev/fuse); and the memory that
`zuse stream extract` takes for one file of a stream of 1 GB.
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

import peers

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


def first_data(image):
    """Where the longest run of bytes begins that the host keeps of a file with holes."""
    fd, at, best = os.open(image, os.O_RDONLY), 0, (0, 0)
    try:
        while True:
            start = os.lseek(fd, at, os.SEEK_DATA)
            at = os.lseek(fd, start, os.SEEK_HOLE)
            best = max(best, (at - start, start))
    except OSError:
        return best[1]
    finally:
        os.close(fd)


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
    first = first_data(image)
    out = {"blocks": blocks, "block_size": size, "stream_bytes": stored}
    out["send -c"] = rates(timed([ZUSE, "zfs", "send", "-c", f"{name}/d@s"]), blocks, size)
    out["send"] = rates(timed([ZUSE, "zfs", "send", f"{name}/d@s"]), blocks, size)
    # As `cat` reads, and of the pool's file itself: where the blocks lie, since holes would be read faster.
    where = [f"skip={first}", f"count={stored}", "iflag=skip_bytes,count_bytes"]
    words = ["dd", f"if={image}", "of=/dev/null", "bs=128K", "status=none", *where]
    out["cat of as many bytes of the pool"] = rates(timed(words), blocks, size)
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


def daemon_seconds(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure_zfs_fuse(work, blocks, size, label, seconds=60):
    """The same blocks in a pool of zfs-fuse, which has no -c: as many as it takes within half of the time. Its writes of small
    records are slow (FUSE hands them over by 4 KiB): without an end they would look like a send that hangs."""
    peer = peers.ZfsFuse(work)
    if peer.missing():
        return {"missing": peer.missing()}
    data, end = work / "data", time.monotonic() + seconds

    def left():
        return max(1, end - time.monotonic())

    try:
        mount = peer.start()
        zfs = [str(peer.tool("zfs"))]
        peers.run(*zfs, "create", "-o", f"recordsize={label}", f"{peer.pool}/d", env=peer.environment, timeout=left())
        peers.wait_until(lambda: peers.is_mounted(mount / "d"), "the dataset's mount")
        write_file(data, blocks, size)
        target = mount / "d" / "data"
        try:
            subprocess.run(["dd", f"if={data}", f"of={target}", "bs=1M"], check=True, stderr=subprocess.DEVNULL, timeout=left() / 2)
        except subprocess.TimeoutExpired:
            pass  # what is there is sent
        written = os.stat(target).st_size // size
        peers.run(*zfs, "snapshot", f"{peer.pool}/d@s", env=peer.environment, timeout=left())
        best = None
        for _ in range(3):
            cpu, start = daemon_seconds(peer.pids()[0]), time.perf_counter()
            with open(os.devnull, "wb") as out:
                words = [*zfs, "send", f"{peer.pool}/d@s"]
                subprocess.run(words, env=peer.environment, stdout=out, check=True, timeout=left())
            wall = time.perf_counter() - start
            if best is None or wall < best["seconds"]:
                best = {"blocks": written, "seconds": wall, "cpu_seconds": daemon_seconds(peer.pids()[0]) - cpu}
        return rates(best, written, size)
    except (subprocess.SubprocessError, RuntimeError, OSError) as e:
        return {"failed": str(e)[-500:]}
    finally:
        peer.stop()
        data.unlink(missing_ok=True)


def blocks_tier(pool):
    """Hits and misses of the block cache of whoever holds a pool."""
    said = subprocess.run([ZUSE, "stats", "-j", pool], check=True, capture_output=True, text=True).stdout
    tiers = json.loads(said)["pools"][pool]["tiers"]
    found = tiers["blocks"] if isinstance(tiers, dict) else next(t for t in tiers if t["tier"] == "blocks")
    return int(found["hits"]), int(found["misses"])


def hit_rate(work, cache, bypass, times):
    """A working set of a third of the cache is read whole so many times, then once before and once after a send of ten times the
    cache. Read once only, its blocks are on probation like those of a scan; read again, they are in the main queue."""
    name, folder, mount = "hits", work / "hits", work / "mnt"
    folder.mkdir()
    mount.mkdir(exist_ok=True)
    with open(folder / "0.img", "wb") as file:
        file.truncate(max(1 << 30, 16 * cache))
    hot, big = work / "hot", work / "big"
    blocks = cache // 3 >> 17
    write_file(hot, blocks, 1 << 17)
    write_file(big, 10 * cache >> 17, 1 << 17)
    zuse("zpool", "create", name, str(folder / "0.img"))
    for dataset, file in (("hot", hot), ("big", big)):
        zuse("zfs", "create", f"{name}/{dataset}")
        zuse("cp", str(file), f"{name}/{dataset}:/")
        file.unlink()
    zuse("zfs", "snapshot", f"{name}/big@s")
    zuse("mount", "-o", f"zfs_arc_max={cache},zuse_send_bypass={bypass}", name, str(mount))
    try:
        def read():
            a = blocks_tier(name)
            # Through the pool's holder, whose cache it is; the kernel keeps nothing of it.
            zuse("cat", f"{name}/hot:/hot")
            b = blocks_tier(name)
            # Of its data blocks: look-ups of metadata would hide that some had to be read anew.
            return round(1 - min(blocks, b[1] - a[1]) / blocks, 4)

        rates_before = [read() for _ in range(times)]
        zuse("zfs", "send", f"{name}/big@s")
        return {"before": rates_before[-1] if times > 1 else None, "after": read()}
    finally:
        zuse("umount", name)
        zuse("zpool", "export", name)
        shutil.rmtree(folder)


def extract_memory(work, total):
    """One file of a stream of `total` bytes: the most memory that the command had resident."""
    name, folder, stream = "extract", work / "extract", work / "extract.zs"
    folder.mkdir()
    with open(folder / "0.img", "wb") as file:
        file.truncate(max(1 << 30, 3 * total))
    zuse("zpool", "create", name, str(folder / "0.img"))
    data = work / "data"
    for i in range(8):
        write_file(data, total // 8 >> 17, 1 << 17)
        zuse("cp", str(data), f"{name}:/file{i}")
    write_file(data, 8, 1 << 17)
    zuse("cp", str(data), f"{name}:/wanted")
    zuse("zfs", "snapshot", f"{name}@s")
    with open(stream, "wb") as out:
        subprocess.run([ZUSE, "zfs", "send", f"{name}@s"], check=True, stdout=out)
    zuse("zpool", "export", name)
    shutil.rmtree(folder)
    out = work / "out"
    out.mkdir()
    start = time.perf_counter()
    child = subprocess.Popen([ZUSE, "stream", "extract", "-p", "/wanted", "-C", str(out), str(stream)], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    same = any(p.is_file() and p.read_bytes() == data.read_bytes() for p in out.rglob("*"))
    result = {
        "stream_bytes": os.stat(stream).st_size,
        "exit": os.waitstatus_to_exitcode(status),
        "same_bytes": same,
        "seconds": wall,
        "max_resident_bytes": used.ru_maxrss * 1024,
    }
    for path in (stream, data):
        path.unlink()
    shutil.rmtree(out, ignore_errors=True)
    return result


def main():
    if sys.argv[1:] not in (["--ci"], ["--full"], ["--smoke"]):
        sys.exit(f"usage: {sys.argv[0]} --ci|--full")
    size = sys.argv[1][2:]
    small, large = {"smoke": (5_000, 64), "ci": (200_000, 2_048), "full": (4_000_000, 32_768)}[size]
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        work = pathlib.Path(folder)
        os.environ["XDG_STATE_HOME"] = str(work / "state")
        os.environ["ZUSE_HOST_LINGER"] = "0"
        result = {
            "cpus": os.cpu_count(),
            "2K": measure(work, "sendsmall", small, 2048, "2K"),
            "128K": measure(work, "sendlarge", large, 131072, "128K"),
            "extract one file": extract_memory(work, 1 << 30 if size != "smoke" else 64 << 20),
        }
        if size != "smoke":
            result["2K"]["zfs-fuse send"] = measure_zfs_fuse(work, small, 2048, "2K")
            result["128K"]["zfs-fuse send"] = measure_zfs_fuse(work, large, 131072, "128K")
        if os.path.exists("/dev/fuse"):
            cache = (16 if size == "smoke" else 64) << 20
            result["hit rate of a working set"] = {
                f"{often}, {word}": hit_rate(work, cache, bypass, times)
                for often, times in (("read often", 4), ("read once", 1))
                for word, bypass in (("bypass on", 1), ("bypass off", 0))
            }
    out = TOP / "bench" / "results" / f"send-{size}.json"
    out.parent.mkdir(exist_ok=True)
    text = json.dumps(result, indent=1)
    if size != "smoke":
        out.write_text(text + "\n")
    print(text)


main()
