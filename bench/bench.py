#!/usr/bin/env python3
"""Measures file systems side by side in one run, on one disk. Standard library only.

Each round creates every peer again and runs all rows on it. Rounds are interleaved, so that a slow minute of the machine affects all
of them. The best of all rounds counts. Before a row marked cold all caches are dropped, the peer's own too (it is unmounted or exported);
before a row marked kernel only the kernel's, so that a server answers from its memory. Rows that change something start warm; what they
left to be written is written (untimed) before the next row.

Results: bench/results/NAME.json (every single run, and the machine) and NAME.md (the table).
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import subprocess
import sys

import peers as peer_module
from peers import BUILT, PEERS, TOP, drop_kernel_caches

DRIVER = BUILT / "release" / "bench-driver"


def rows(files, data_bytes, file_bytes):
    """(key, what it says in the table, cache state before it, driver words; {} is the mount). The order matters."""
    out = []
    for layout, dirs in (("100 dirs", 100), ("flat", 1)):
        tree = "{}/" + layout.replace(" ", "-")
        key = "dirs" if dirs > 1 else "flat"
        label = f"{files:,} files, {layout}"
        out += [
            (f"create-{key}", f"create {label}", "warm", ["create", tree, files, dirs, file_bytes]),
            (f"stat-{key}", f"stat {label}", "kernel", ["stat", tree, files, dirs]),
            (f"find-{key}", f"find {label}, cold", "cold", ["find", tree]),
            (f"list-{key}", f"list {label}, cold", "cold", ["list", tree]),
            (f"remove-{key}", f"remove {label}", "warm", ["remove", tree, files, dirs]),
        ]
    for kind, label in (("text", "compressible"), ("noise", "incompressible")):
        size = f"{data_bytes / (1 << 30):g} GiB"
        out += [
            (f"write-{kind}", f"write {size} {label}, fsync", "warm", ["write", "{}/" + kind, data_bytes, kind]),
            (f"read-{kind}", f"read {size} {label}, cold", "cold", ["read", "{}/" + kind]),
        ]
    return out


def high_water(pids):
    """Peak resident memory of the processes, in KiB."""
    total = 0
    for pid in pids:
        try:
            for line in open(f"/proc/{pid}/status"):
                if line.startswith("VmHWM:"):
                    total += int(line.split()[1])
        except OSError:
            pass
    return total


def measure(peer, plan):
    """One round: {row key: {count, seconds}}, and the peak memory in KiB."""
    results, peak = {}, 0
    mount = peer.start()
    for key, label, state, words in plan:
        if state == "cold":
            peak = max(peak, high_water(peer.pids()))  # the server may be restarted
            peer.cold()
        elif state == "kernel":
            drop_kernel_caches()
        else:
            os.sync()
        command = [str(DRIVER)] + [str(word).format(mount) for word in words]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            results[key] = {"error": done.stderr.strip()[-300:]}
            print(f"    {label}: FAILED: {results[key]['error']}", flush=True)
            continue
        results[key] = json.loads(done.stdout)
        print(f"    {label}: {show(key, results[key])}", flush=True)
    peak = max(peak, high_water(peer.pids()))
    peer.stop()
    return results, peak


def rate(result):
    return result["count"] / result["seconds"] if result["seconds"] else float("inf")


def show(key, result):
    if key.startswith(("write", "read")):
        return f"{rate(result) / 1e6:,.0f} MB/s"
    return f"{rate(result):,.0f}/s"


def machine():
    info = {"kernel": platform.release(), "cpus": os.cpu_count(), "root": os.geteuid() == 0}
    for line in open("/proc/cpuinfo"):
        if line.startswith("model name"):
            info["cpu"] = line.split(":", 1)[1].strip()
            break
    for line in open("/proc/meminfo"):
        if line.startswith("MemTotal"):
            info["memory_kib"] = int(line.split()[1])
    git = subprocess.run(["git", "-C", str(TOP), "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    info["commit"] = git.stdout.strip()
    return info


def best(runs, key):
    good = [run["rows"][key] for run in runs if "seconds" in run["rows"].get(key, {})]
    return min(good, key=lambda result: result["seconds"]) if good else None


def few(record, name):
    """Says when a peer had fewer rounds than the others."""
    runs = len(record["peers"][name]["runs"])
    return f" (best of {runs})" if runs < record["rounds"] else ""


def table(record, plan):
    """Markdown: a row per workload, a column per peer, and Zuse (or else the last peer) divided by each other one."""
    names = list(record["peers"])
    subject = "zuse" if "zuse" in names else names[-1]
    others = [name for name in names if name != subject]
    lines = [
        "| | " + " | ".join(names + [f"{subject} ÷ {name}" for name in others]) + " |",
        "|---|" + "---:|" * (len(names) + len(others)),
    ]
    for key, label, _, _ in plan:
        found = {name: best(record["peers"][name]["runs"], key) for name in names}
        cells = [show(key, found[name]) if found[name] else "failed" for name in names]
        for name in others:
            both = found[subject] and found[name]
            cells.append(f"{rate(found[subject]) / rate(found[name]):.2f}" if both else "–")
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    peaks = {name: max((run["peak_kib"] for run in record["peers"][name]["runs"]), default=0) for name in names}
    cells = [f"{peaks[name] / 1024:,.0f} MiB" if peaks[name] else "–" for name in names]
    cells += [f"{peaks[subject] / peaks[name]:.2f}" if peaks[name] and peaks[subject] else "–" for name in others]
    lines.append("| peak memory of the server | " + " | ".join(cells) + " |")

    info = record["machine"]
    head = [
        f"# {record['name']}",
        "",
        f"{info.get('cpu', 'unknown CPU')}, {info['cpus']} CPUs, {info['memory_kib'] / (1 << 20):.0f} GiB, Linux {info['kernel']}; "
        f"commit {info['commit']}; {record['date']}; best of {record['rounds']}. Higher is better, but for memory. "
        "A quotient above 1 says that " + subject + " does more per second.",
    ]
    if not info["root"]:
        head += ["", "**Not run as root: the kernel's caches were not dropped; rows called cold were warm.**"]
    tail = [f"- `{name}`{few(record, name)}: {record['peers'][name]['about']}" for name in names]
    tail += [f"- not run: `{name}`: {why}" for name, why in record["not_run"].items()]
    return "\n".join(head + [""] + lines + [""] + tail) + "\n"


def main():
    known = [peer.name for peer in PEERS]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=",".join(name for name in known if name != "xfs"), help="comma-separated, of: " + ", ".join(known))
    parser.add_argument("--rounds", type=int, default=3, help="best of how many (default 3)")
    parser.add_argument("--fewer", default="", help="PEER=ROUNDS,…: for peers that take long")
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--file-bytes", type=int, default=100, help="content of each small file")
    parser.add_argument("--data-mib", type=int, default=2048, help="size of the large files")
    parser.add_argument("--quick", action="store_true", help="5,000 files, 256 MiB, one round")
    parser.add_argument("--only", default="", help="rows whose key contains one of these comma-separated words (create and write rows stay)")
    parser.add_argument("--scratch", type=pathlib.Path, default=TOP / "target" / "bench" / "scratch", help="a folder on the disk under test")
    parser.add_argument("--name", default="latest", help="of the result files")
    options = parser.parse_args()
    if options.quick:
        options.files, options.data_mib, options.rounds = 5_000, 256, 1
        if options.name == "latest":
            options.name = "quick"

    wanted = options.peers.split(",")
    unknown = [name for name in wanted if name not in known]
    if unknown:
        parser.error(f"no such peer: {', '.join(unknown)}")
    fewer = {name: int(rounds) for name, rounds in (word.split("=") for word in options.fewer.split(",") if word)}
    plan = rows(options.files, options.data_mib << 20, options.file_bytes)
    if options.only:
        words = options.only.split(",")
        plan = [row for row in plan if row[0].startswith(("create", "write", "remove")) or any(word in row[0] for word in words)]

    chosen, not_run = [], {}
    for kind in (peer for peer in PEERS if peer.name in wanted):
        peer = kind(options.scratch)
        why = peer.missing()
        if why:
            not_run[kind.name] = why
            print(f"not run: {kind.name}: {why}")
        else:
            chosen.append(peer)
    if not chosen:
        sys.exit("bench: no peer can run here")

    record = {
        "name": options.name,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "machine": machine(),
        "rounds": options.rounds,
        "files": options.files,
        "data_mib": options.data_mib,
        "peers": {peer.name: {"about": peer.about, "runs": []} for peer in chosen},
        "not_run": not_run,
    }
    for number in range(options.rounds):
        for peer in (peer for peer in chosen if number < fewer.get(peer.name, options.rounds)):
            print(f"round {number + 1} of {options.rounds}: {peer.name}", flush=True)
            try:
                results, peak = measure(peer, plan)
                record["peers"][peer.name]["runs"].append({"rows": results, "peak_kib": peak})
            except RuntimeError as error:
                print(f"    FAILED: {error}", flush=True)
                record["peers"][peer.name].setdefault("errors", []).append(str(error))
            finally:
                try:
                    peer.stop()
                except RuntimeError as error:
                    print(f"    could not be stopped: {error}", flush=True)
                if not peer_module.is_mounted(peer.mount):
                    peer_module.shutil.rmtree(peer.scratch, ignore_errors=True)
        # After each round: a bench that is stopped keeps what it has.
        text = write(record, plan, number + 1)
    print("\n" + text)


def write(record, plan, rounds):
    """Leaves the results of so many rounds in bench/results; gives the table."""
    record["rounds"] = rounds
    results = TOP / "bench" / "results"
    results.mkdir(exist_ok=True)
    (results / f"{record['name']}.json").write_text(json.dumps(record, indent=1) + "\n")
    text = table(record, plan)
    (results / f"{record['name']}.md").write_text(text)
    return text


if __name__ == "__main__":
    main()
