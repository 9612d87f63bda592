#!/usr/bin/env python3
"""What fsync costs, side by side in one run, on one disk. Standard library only; pgbench where it is installed.

    bench/fsync.py                    rounds of all rows (some minutes)
    bench/fsync.py --quick            small ones, to see that they run

Needs target/release/zuse, and the driver as bench/run.sh builds it. Root, for loop mounts.

| row | what |
|---|---|
| append, 1 thread | 4 KiB appended and made durable with fdatasync, one call after the other: the median and how many a second |
| append, 16 threads | the same, each thread with a file of its own |
| sqlite | inserts, each a transaction of its own (rollback journal, synchronous=full) |
| sqlite, WAL | the same with a write-ahead log |
| pgbench | PostgreSQL's TPC-B with 4 clients |

The directory is the limit: a program that appends to a file of the host. Next to Zuse's rows are its counters of the intent log
(`zuse stats`), as far as they changed. Results: bench/results/NAME.json.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import time

from bench import DRIVER, machine
from peers import TOP, Ext4, PlainDirectory, Zuse, run


def append(folder, threads, calls):
    place = folder / f"append-{threads}"
    place.mkdir()
    done = json.loads(run(DRIVER, "append", place, threads, calls, 4096))
    return {"rate": done["count"] / done["seconds"], "median_us": done["median"] * 1e6, "count": done["count"]}


def sqlite(folder, journal, rows):
    base = sqlite3.connect(folder / f"{journal}.db", isolation_level=None)
    base.execute(f"pragma journal_mode={journal}")
    base.execute("pragma synchronous=full")
    base.execute("create table t(id integer primary key, v text)")
    took = []
    start = time.monotonic()
    for _ in range(rows):
        began = time.monotonic()
        base.execute("insert into t(v) values(?)", ["x" * 100])
        took.append(time.monotonic() - began)
    seconds = time.monotonic() - start
    base.close()
    return {"rate": rows / seconds, "median_us": statistics.median(took) * 1e6, "count": rows}


def programs():
    """PostgreSQL's, where they are."""
    return max(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), default=None)


def pgbench(folder, seconds):
    """Transactions a second of a server whose data is in the folder, run as the user postgres."""
    place, socket = folder / "pg", pathlib.Path("/tmp") / f"bench-pg-{os.getpid()}"
    for each in (place, socket):
        each.mkdir(mode=0o700)
        shutil.chown(each, "postgres", "postgres")
    as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "env", "-C", "/"]

    def tool(name, *words):
        return run(*as_user, programs() / name, *words)

    tool("initdb", "-D", place, "-A", "trust", "--no-sync")
    tool("pg_ctl", "-s", "-w", "-D", place, "-l", socket / "log", "-o", f"-k {socket} -h ''", "start")
    try:
        tool("createdb", "-h", socket, "bank")
        tool("pgbench", "-h", socket, "-i", "-q", "bank")
        said = tool("pgbench", "-h", socket, "-n", "-c", "4", "-T", seconds, "bank")
    finally:
        tool("pg_ctl", "-s", "-m", "fast", "-D", place, "stop")
        shutil.rmtree(socket)
    return {"rate": float(re.search(r"tps = ([0-9.]+)", said)[1]), "count": int(re.search(r"processed: (\d+)", said)[1])}


def counters(peer):
    """The numbers that `zuse stats` shows of the intent log."""
    if not isinstance(peer, Zuse):
        return {}
    said = json.loads(peer.zuse("stats", "-j", peer.pool))
    found = {}

    def look(path, value):
        if isinstance(value, dict):
            for name, inner in value.items():
                look([*path, name], inner)
        # What is a mean already has no difference.
        elif isinstance(value, (int, float)) and any("log" in word for word in path) and not path[-1].startswith(("mean", "waiters")):
            found[path[-1]] = value

    look([], said)
    return found


def rows(options):
    size = options.calls
    all_ = [
        ("append, 1 thread", lambda folder: append(folder, 1, size)),
        ("append, 16 threads", lambda folder: append(folder, 16, max(size // 4, 20))),
        ("sqlite", lambda folder: sqlite(folder, "delete", size)),
        ("sqlite, WAL", lambda folder: sqlite(folder, "wal", size)),
    ]
    if programs() and os.geteuid() == 0:
        all_.append(("pgbench", lambda folder: pgbench(folder, options.seconds)))
    else:
        print("not run: pgbench: PostgreSQL is not installed, or this is not root")
    return all_


class SharedZuse(Zuse):
    """One that PostgreSQL's user may enter, with its log."""

    tunables = {"zuse_intent_log": 1}

    def command(self):
        words = super().command()
        return words[:2] + ["-o", "allow_other"] + words[2:]


def measure(peer, plan):
    folder, results = peer.start(), {}
    os.chmod(folder, 0o755)
    for name, row in plan:
        before = counters(peer)
        results[name] = row(folder)
        changed = {k: v - before.get(k, 0) for k, v in counters(peer).items() if v != before.get(k, 0)}
        if changed.get("flushes"):
            changed["waiters a flush"] = changed.get("commits_by_flush", 0) / changed["flushes"]
        results[name].update({"log": changed} if changed else {})
        print(f"    {name}: {show(results[name])}", flush=True)
    peer.stop()
    return results


def show(result):
    median = f", median {result['median_us']:,.0f} µs" if "median_us" in result else ""
    log = "".join(f"; {name} {value:,.1f}" for name, value in result.get("log", {}).items())
    return f"{result['rate']:,.0f}/s{median}{log}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--calls", type=int, default=2000, help="of each row of calls")
    parser.add_argument("--seconds", type=int, default=20, help="of pgbench")
    parser.add_argument("--quick", action="store_true", help="one small round")
    parser.add_argument("--peers", default="dir,ext4,zuse")
    parser.add_argument("--scratch", type=pathlib.Path, default=TOP / "target" / "bench" / "fsync", help="a folder on the disk under test")
    parser.add_argument("--name", default="fsync")
    options = parser.parse_args()
    if options.quick:
        options.rounds, options.calls, options.seconds = 1, 100, 3
    record = {"machine": machine(), "rounds": []}
    for number in range(options.rounds):
        record["rounds"].append({})
        for kind in (PlainDirectory, Ext4, SharedZuse):
            if kind.name not in options.peers.split(","):
                continue
            peer = kind(options.scratch)
            why = peer.missing()
            print(f"round {number + 1}: {kind.name}{f': not run: {why}' if why else ''}", flush=True)
            if why:
                continue
            try:
                record["rounds"][-1][kind.name] = measure(peer, rows(options))
            finally:
                peer.stop()
                shutil.rmtree(peer.scratch, ignore_errors=True)
    results = TOP / "bench" / "results"
    results.mkdir(exist_ok=True)
    (results / f"{options.name}.json").write_text(json.dumps(record, indent=1) + "\n")
    for name, _ in rows(options):
        found = {}
        for each in record["rounds"]:
            for peer, result in each.items():
                found.setdefault(peer, []).append(result[name]["rate"])
        print(f"| {name} | " + " | ".join(f"{peer} {max(rates):,.0f}/s" for peer, rates in found.items()) + " |")


if __name__ == "__main__":
    sys.exit(main())
