#!/usr/bin/env python3
"""How fast a pool is scrubbed and its devices are filled, and what a scrub costs a reader.

    bench/heal.py --ci        4 GiB of noise in one file, in raidz1 of four and in a mirror (a quarter of an hour)
    bench/heal.py --smoke     128 MiB, nothing is written down

| row | what is timed | beside it |
|---|---|---|
| scrub, one file / raidz1 of four | `zpool scrub -w`, every cache dropped before | zfs-fuse's scrub of the same pool, which it made, `cat` of the images |
| resilver, mirror / raidz1 | `zpool replace -w` of one device | `cp` with fsync of a sibling's image: as many bytes |
| reader | half of the files through a mount, while a scrub runs | the same without one |

Rounds are interleaved; the best counts. ZUSE names the binary (target/release/zuse); bench/get-zfs-fuse.sh unpacks the peer, which is left
out if it is not there. Results: bench/results/heal-ci.json. Needs root; --ci needs 20 GB of disk.
"""

import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import peers

ZUSE = os.environ.get("ZUSE", str(peers.BUILD / "release" / "zuse"))
RUNS = int(os.environ.get("HEAL_RUNS", 3))
POOL = "healed"
FILES = 8


def zuse(*words):
    return peers.run(ZUSE, *words)


def timed(action):
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def read(paths):
    for path in paths:
        with open(path, "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass


def written(path):
    return os.stat(path).st_blocks * 512


class Pool:
    """A pool of some files, made by zfs-fuse where it is there: it ends a scrub of a pool that Zuse made too early."""

    def __init__(self, work, kind, devices, size, fuse):
        self.work, self.folder, self.mount = work, work / f"pool-{kind or 'file'}", work / "mnt"
        self.folder.mkdir()
        self.mount.mkdir(exist_ok=True)
        self.devices = [self.folder / f"d{i}" for i in range(devices)]
        each = {"": size, "raidz1": size // max(devices - 1, 1), "mirror": size}[kind]
        self.device_bytes = each + each // 4 + (512 << 20)
        for device in self.devices:
            self.make(device)
        words = [kind] if kind else []
        create = ["create", "-m", self.mount, "-O", "compression=off", "-O", "atime=off", POOL, *words, *self.devices]
        if fuse:
            with fuse.running():
                fuse.zpool(*create)
                peers.wait_until(lambda: peers.is_mounted(self.mount), "zfs-fuse mounting")
                self.fill(size)
                fuse.zpool("export", POOL)
        else:
            zuse("zpool", *create)
            self.fill(size)
            zuse("zpool", "export", POOL)

    def fill(self, size):
        for i in range(FILES):
            with open("/dev/urandom", "rb") as source, open(self.mount / f"noise{i}", "wb") as out:
                left = size // FILES
                while left:
                    out.write(source.read(min(left, 1 << 20)))
                    left -= min(left, 1 << 20)

    def make(self, path):
        path.unlink(missing_ok=True)
        with open(path, "wb") as file:
            file.truncate(self.device_bytes)

    def open(self):
        peers.drop_kernel_caches()
        zuse("zpool", "import", "-d", self.folder, POOL)

    def scrub(self):
        self.open()
        seconds = timed(lambda: zuse("zpool", "scrub", "-w", POOL))
        text = zuse("zpool", "status", POOL)
        if "scrub repaired 0B in" not in text or "with 0 errors" not in text:
            sys.exit(f"the scrub did not come to its end:\n{text}")
        zuse("zpool", "export", POOL)
        return seconds

    def cat(self):
        peers.drop_kernel_caches()
        return timed(lambda: read(self.devices))

    def reader(self, scrubbed):
        self.open()
        files = sorted(self.mount.glob("noise*"))[: FILES // 2]
        size = sum(os.stat(path).st_size for path in files)
        if scrubbed:
            zuse("zpool", "scrub", POOL)
        seconds = timed(lambda: read(files))
        still = not scrubbed or "in progress" in zuse("zpool", "status", POOL)
        # It would go on with the next import.
        subprocess.run([ZUSE, "zpool", "scrub", "-s", POOL], capture_output=True)
        zuse("zpool", "export", POOL)
        return size / seconds, still

    def resilver(self):
        """Replaces the last device by a new one; gives the bytes that it got, and the time."""
        self.open()
        old, new = self.devices[-1], self.folder / f"new{time.monotonic_ns()}"
        self.make(new)
        seconds = timed(lambda: zuse("zpool", "replace", "-w", POOL, old, new))
        zuse("zpool", "export", POOL)
        self.devices[-1] = new
        old.unlink()
        return written(new), seconds

    def copy(self):
        """Copies the image of a device that stays; gives its bytes, and the time until they are on the disk."""
        peers.drop_kernel_caches()
        target = self.folder.parent / "copy"

        def copy():
            peers.run("cp", self.devices[0], target)
            file = os.open(target, os.O_RDWR)
            os.fsync(file)
            os.close(file)

        seconds = timed(copy)
        size = written(target)
        target.unlink()
        return size, seconds

    def close(self):
        for path in self.folder.iterdir():
            path.unlink()
        self.folder.rmdir()


class Fuse(peers.ZfsFuse):
    """zfs-fuse, with a pool that is there already."""

    # It was met while it scrubbed: what it says at the end is not of an earlier scrub.
    seen = False

    @contextlib.contextmanager
    def running(self):
        os.makedirs("/var/run/zfs", exist_ok=True)
        self.scratch.mkdir(parents=True, exist_ok=True)
        with open(self.scratch / "daemon.log", "w") as log:
            words = [self.tool("zfs-fuse"), "--no-daemon", "--no-kstat-mount"]
            self.daemon = subprocess.Popen(words, stdout=log, stderr=log, env=self.environment)
        self.pool = POOL
        try:
            peers.wait_until(self.answers, "zfs-fuse answering")
            # A run that was killed leaves its pool in the daemon's list of pools.
            subprocess.run([self.tool("zpool"), "export", "-f", POOL], env=self.environment, capture_output=True)
            yield
        finally:
            self.stop()

    def scrub(self, folder):
        with self.running():
            peers.drop_kernel_caches()
            self.zpool("import", "-f", "-d", folder, POOL)
            return timed(self.scrubbed)

    def scrubbed(self):
        self.zpool("scrub", POOL)
        done = re.compile(r"scrub (completed|repaired).* with 0 errors")
        while not done.search(text := self.zpool("status", POOL)):
            self.seen |= "in progress" in text
            time.sleep(0.05)


def rate(pairs):
    return max(size / seconds for size, seconds in pairs) / 1e6


def scrubs(pool, fuse):
    seconds = {"zuse": [], "zfs-fuse": [], "cat": []}
    for _ in range(RUNS):
        seconds["zuse"].append(pool.scrub())
        seconds["cat"].append(pool.cat())
        if fuse:
            seconds["zfs-fuse"].append(fuse.scrub(pool.folder))
    row = {f"{name} s": round(min(all_), 3) for name, all_ in seconds.items() if all_}
    row["bytes"] = sum(written(device) for device in pool.devices)
    if fuse:
        row["zfs-fuse was seen at it"] = fuse.seen
        row["times zfs-fuse's speed (3)"] = round(row["zfs-fuse s"] / row["zuse s"], 2)
    row["of cat's speed"] = round(row["cat s"] / row["zuse s"], 2)
    return row


def resilvers(pool):
    ours, copies = [], []
    for _ in range(RUNS):
        ours.append(pool.resilver())
        copies.append(pool.copy())
    row = {"zuse MB/s": round(rate(ours)), "cp MB/s": round(rate(copies)), "bytes": ours[-1][0]}
    row["of cp's speed (0.7)"] = round(rate(ours) / rate(copies), 2)
    return row


def readers(pool):
    alone, beside, whole = [], [], True
    for _ in range(RUNS):
        alone.append(pool.reader(False)[0])
        speed, still = pool.reader(True)
        beside.append(speed)
        whole &= still
    row = {"alone MB/s": round(max(alone) / 1e6), "with a scrub MB/s": round(max(beside) / 1e6)}
    row["of its speed (0.7)"] = round(max(beside) / max(alone), 2)
    row["the scrub ran all the time"] = whole
    return row


def main():
    if sys.argv[1:] not in (["--ci"], ["--smoke"]):
        sys.exit(f"usage: {sys.argv[0]} --ci|--smoke")
    mode = sys.argv[1][2:]
    size = int(os.environ.get("HEAL_BYTES", {"smoke": 128 << 20, "ci": 4 << 30}[mode]))
    result = {"cpus": os.cpu_count(), "bytes of noise": size}
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as folder:
        work = pathlib.Path(folder)
        (work / "state").mkdir(mode=0o700)
        os.environ["XDG_STATE_HOME"] = os.environ["XDG_RUNTIME_DIR"] = str(work / "state")
        os.environ.pop("ZUSE_HOST_LINGER", None)
        fuse = Fuse(work / "fuse")
        why = fuse.missing()
        if why:
            print(f"without zfs-fuse: {why}", file=sys.stderr)
            fuse = None
        for kind, devices, name in (("", 1, "one file"), ("raidz1", 4, "raidz1 of four"), ("mirror", 2, "mirror")):
            try:
                pool = Pool(work, kind, devices, size, fuse)
                if kind != "mirror":
                    result[f"scrub, {name}"] = scrubs(pool, fuse)
                if not kind:
                    result[f"reader, {name}"] = readers(pool)
                else:
                    result[f"resilver, {name}"] = resilvers(pool)
                pool.close()
            finally:
                # Of a run that was interrupted nothing stays mounted.
                subprocess.run([ZUSE, "zpool", "export", "-f", POOL], capture_output=True)
    text = json.dumps(result, indent=1)
    if mode != "smoke":
        (peers.TOP / "bench" / "results").mkdir(exist_ok=True)
        (peers.TOP / "bench" / "results" / f"heal-{mode}.json").write_text(text + "\n")
    print(text)


main()
