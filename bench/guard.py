#!/usr/bin/env python3
"""Compares the rows of two binaries, in turns: whether a change costs anything that users notice.

    bench/guard.py BEFORE AFTER DIR [ROUNDS]

Each round runs BEFORE, BEFORE again (the A/A series: what lies within it is noise) and AFTER, each on a new pool in DIR. Best and
median of ROUNDS (5) are printed, with the ratio of the medians. As root: the kernel's caches are dropped before what is read cold.
`bench/driver` has to be built (`cargo build --release --manifest-path bench/driver/Cargo.toml`), or DRIVER names it.
"""
import json, os, platform, shutil, statistics, subprocess, sys, time

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
DRIVER = os.environ.get("DRIVER", f"{TOP}/bench/driver/target/release/bench-driver")
FILES, DIRS = 60_000, 60
LARGE = 1 << 30


class Bench:
    def __init__(self, binary, top):
        self.zuse, self.top, self.rows = os.path.abspath(binary), top, {}
        os.makedirs(f"{top}/mnt")
        os.makedirs(f"{top}/run", mode=0o700)
        self.env = dict(os.environ, XDG_STATE_HOME=f"{top}/state", XDG_RUNTIME_DIR=f"{top}/run", ZUSE_HOST_LINGER="0")

    def run(self, *words, **more):
        subprocess.run([self.zuse, *words], check=True, env=self.env, **more)

    def timed(self, row, work):
        begin = time.monotonic()
        work()
        self.rows[row] = time.monotonic() - begin

    def driver(self, row, *words):
        out = subprocess.run([DRIVER, *map(str, words)], check=True, capture_output=True, text=True).stdout
        self.rows[row] = json.loads(out)["seconds"]

    def cold(self):
        self.run("umount", f"{self.top}/mnt")
        os.sync()
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("3")
        self.run("mount", "guard", f"{self.top}/mnt")

    def all(self):
        tree, quiet = f"{self.top}/mnt/t", {"stdout": subprocess.DEVNULL}
        self.run("zpool", "create", "-m", "none", "-O", "xattr=sa", "guard", f"{self.top}/disk.img", "--size", "8G")
        self.run("mount", "guard", f"{self.top}/mnt")
        self.driver("create", "create", tree, FILES, DIRS, 0)
        self.cold()
        self.driver("find, cold", "find", tree)
        self.driver("list, warm", "list", tree)
        self.driver("lookup", "stat", tree, FILES, DIRS)
        for size, count in [(256, 20_000), (16_384, 4_000), (65_536, 1_500)]:
            where = f"{self.top}/mnt/x{size}"
            subprocess.run([DRIVER, "create", where, str(count), "4", "0"], check=True, stdout=subprocess.DEVNULL)
            self.driver(f"setxattr {size}", "setxattr", where, count, 4, size)
            self.cold()
            self.driver(f"getxattr {size}, cold", "getxattr", where, count, 4, size)
        self.driver("write 1 GiB", "write", f"{self.top}/mnt/large", LARGE, "noise")
        self.cold()
        self.driver("read 1 GiB, cold", "read", f"{self.top}/mnt/large")
        self.driver("remove", "remove", tree, FILES, DIRS)
        self.run("umount", f"{self.top}/mnt")
        self.run("zfs", "snapshot", "guard@s")
        stream = f"{self.top}/stream"
        with open(stream, "wb") as out:
            self.timed("send", lambda: self.run("zfs", "send", "guard@s", stdout=out))
        with open(stream, "rb") as come:
            self.timed("receive", lambda: self.run("zfs", "receive", "guard/r", stdin=come))
        for name in range(40):
            self.run("zfs", "create", f"guard/c{name}")
        for name in range(25):
            self.run("zfs", "snapshot", "-r", f"guard@n{name}")
        self.timed("get all, 1,000 snapshots", lambda: self.run("zfs", "get", "-r", "-t", "all", "all", "guard", **quiet))
        self.timed("list 1,000 snapshots", lambda: self.run("zfs", "list", "-t", "snapshot", **quiet))

    def end(self):
        subprocess.run([self.zuse, "umount", "-f", f"{self.top}/mnt"], env=self.env, capture_output=True)
        shutil.rmtree(self.top)


def main():
    before, after, top = sys.argv[1:4]
    rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 5
    series = {"before": before, "before again": before, "after": after}
    found = {name: {} for name in series}
    for number in range(rounds):
        for name, binary in series.items():
            bench = Bench(binary, f"{top}/guard")
            try:
                bench.all()
            finally:
                bench.end()
            for row, seconds in bench.rows.items():
                found[name].setdefault(row, []).append(seconds)
            print(f"round {number + 1}, {name}: done", file=sys.stderr)
    with open("/proc/cpuinfo") as f:
        model = next((line.split(":")[1].strip() for line in f if line.startswith("model name")), "")
    print(f"{os.cpu_count()} × {model}, Linux {platform.release()}; seconds, best / median of {rounds}\n")
    print("| row | before | before again | after | after ÷ before | A/A |")
    print("|---|---:|---:|---:|---:|---:|")
    for row in found["before"]:
        cells = [found[name][row] for name in series]
        middle = [statistics.median(cell) for cell in cells]
        shown = " | ".join(f"{min(cell):.2f} / {m:.2f}" for cell, m in zip(cells, middle))
        print(f"| {row} | {shown} | {middle[2] / middle[0]:.2f} | {middle[1] / middle[0]:.2f} |")


main()
