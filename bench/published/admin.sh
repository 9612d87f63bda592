#!/usr/bin/env bash
# What administration costs on pools with very many datasets and snapshots. Prints a line per measurement as it is made, at the end
# a table with the goals, and writes all of it as JSON.
#
#   ZUSE=target/release/zuse bench/published/admin.sh DIR [JSON]      DIR: a folder with 4 GB of room; JSON: DIR/admin.json
#
# About six minutes at full size on two quiet cores. `SMALL=1` takes a hundredth of everything: whether it runs at all.
#
# FILESYSTEMS (400), SNAPSHOTS (100 of each), OTHERS (600), MANY (10000), ONE (300), LISTED (100000 snapshots), FILES (200000) and CHANGED
# (2000) change the sizes. Device reads are counted by strace where it is installed. "cold" is a new process that opens the pool, after
# the image was evicted from the host's page cache. "warm" is answered by the process that holds the pool for a mount; without FUSE it is
# left out. The block cache is limited to 64 MB for the pool of the published table; "off" is the same without the metadata tier.
set -euo pipefail
[ $# = 1 ] || [ $# = 2 ] || { echo "usage: admin.sh DIR [JSON]" >&2; exit 2; }
dir=$1 zuse=${ZUSE:-target/release/zuse}
zuse=$(realpath "$zuse")
part=1
[ -z "${SMALL:-}" ] || part=100
filesystems=${FILESYSTEMS:-$((400 / part))} snapshots=${SNAPSHOTS:-$((part > 1 ? 5 : 100))} others=${OTHERS:-$((600 / part))}
many=${MANY:-$((10000 / part))} one=${ONE:-$((part > 1 ? 10 : 300))} listed=${LISTED:-$((part > 1 ? 2000 : 100000))}
files=${FILES:-$((200000 / part))} changed=${CHANGED:-$((2000 / part))}
mkdir -p "$dir"
dir=$(realpath "$dir")
json=${2:-$dir/admin.json}
: >"$dir/lines"
export XDG_STATE_HOME=$dir/state ZUSE_HOST_LINGER=0
rm -rf "$dir/state" "$dir"/*.img

note() { # name figure unit
    printf '%s %s %s\n' "$@" | tee -a "$dir/lines"
}
# Seconds that pass, seconds of processors (user and system) of the command, lines that it printed.
say() { # name command…
    local name=$1
    shift
    python3 -c 'import os, subprocess, sys, time
before = time.monotonic()
with open(sys.argv[1], "wb") as out:
    code = subprocess.run(sys.argv[3:], stdout=out).returncode
took, used = time.monotonic() - before, os.times()
with open(sys.argv[1], "rb") as out:
    lines = sum(piece.count(b"\n") for piece in iter(lambda: out.read(1 << 20), b""))
print(f"{sys.argv[2]} {took:.3f} s {used.children_user + used.children_system:.2f} cpu {lines} lines")
sys.exit(code)' "$dir/out" "$name" "$@" >"$dir/said" || { echo "$name failed" >&2; exit 1; }
    tee -a "$dir/lines" <"$dir/said"
}
evict() { # image
    python3 -c 'import os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
os.fsync(fd)
os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)' "$1"
}
cold() { # image name command…
    evict "$1"
    shift
    say "$@"
}
reads() { # name command…
    local name=$1
    shift
    command -v strace >/dev/null || return 0
    strace -f -qq -e trace=pread64,preadv,preadv2,read -o "$dir/trace" "$@" >/dev/null
    note "$name-reads" "$(grep -cE 'pread.*= [0-9]+$' "$dir/trace")" reads
}
# A program to be run by $lua.
write() { # text
    printf '%s\n' "$1" >"$dir/p.lua"
}
lua="zfs program -t 100000000 -m 104857600"

"$zuse" zpool create -m none many "$dir/many.img" --size 4G
"$zuse" zfs create many/base
"$zuse" zfs snapshot many/base@s
"$zuse" zfs create many/all
write "for i = 1, $many do zfs.sync.clone('many/base@s', 'many/all/c' .. i) end"
# shellcheck disable=SC2086
say clones-by-program "$zuse" $lua many "$dir/p.lua"
say snapshot-recursive "$zuse" zfs snapshot -r many/all@r
write "for d in zfs.list.children('many/all') do zfs.sync.snapshot(d .. '@p') end"
# shellcheck disable=SC2086
say snapshots-by-program "$zuse" $lua many "$dir/p.lua"
cold "$dir/many.img" list-snapshots-cold "$zuse" zfs list -t snapshot -o name,creation,used
say destroy-recursive-snapshots "$zuse" zfs destroy -r many/all@r
write "for d in zfs.list.children('many/all') do zfs.sync.destroy(d .. '@p') end"
# shellcheck disable=SC2086
say destroy-by-program "$zuse" $lua many "$dir/p.lua"
# A dataset takes one snapshot a txg: of one dataset there are fewer.
for i in $(seq "$one"); do "$zuse" zfs snapshot "many/base@n$i"; done
say destroy-of-one-dataset "$zuse" zfs destroy "many/base@n1%n$one"
"$zuse" zpool export many

"$zuse" zpool create -m none mix "$dir/mix.img" --size 4G
"$zuse" zfs create mix/fs
"$zuse" zfs create mix/other
for i in $(seq "$filesystems"); do "$zuse" zfs create "mix/fs/f$i"; done
for i in $(seq "$others"); do "$zuse" zfs create "mix/other/o$i"; done
from=$(date +%s.%N)
for i in $(seq "$snapshots"); do "$zuse" zfs snapshot -r "mix/fs@s$i"; done
note snapshots-of-filesystems "$(echo "$(date +%s.%N) - $from" | bc)" s
limit="--tune zfs_arc_max=64M"
# shellcheck disable=SC2086
for tier in "" "--tune zuse_metadata_cache=0"; do
    name=${tier:+-off}
    cold "$dir/mix.img" "get-all-cold$name" "$zuse" $limit $tier zfs get all
    reads "get-all-cold$name" "$zuse" $limit $tier zfs get all
    cold "$dir/mix.img" "list-all-cold$name" "$zuse" $limit $tier zfs list -t all -o all
    reads "list-all-cold$name" "$zuse" $limit $tier zfs list -t all -o all
done
cold "$dir/mix.img" get-all-json-cold "$zuse" zfs get -j all
"$zuse" zpool export mix
# shellcheck disable=SC2086
cold "$dir/mix.img" import "$zuse" $limit zpool import -d "$dir/mix.img" mix
"$zuse" zpool export mix
# shellcheck disable=SC2086
reads import "$zuse" $limit zpool import -d "$dir/mix.img" mix
"$zuse" zfs list -H -o name >/dev/null
warm() { # dataset name command…
    local dataset=$1 name=$2
    shift 2
    mkdir -p "$dir/mnt"
    "$zuse" mount "$dataset" "$dir/mnt" 2>/dev/null || { echo "$name left out: no FUSE"; return 0; }
    "$@" >/dev/null
    say "$name" "$@"
    "$zuse" umount "$dir/mnt"
}
warm mix/fs get-all-warm "$zuse" zfs get all
"$zuse" zpool export mix

"$zuse" zpool create -m none listed "$dir/listed.img" --size 8G
"$zuse" zfs create listed/base
"$zuse" zfs snapshot listed/base@s
"$zuse" zfs create listed/all
write "for i = 1, $((listed / 100)) do zfs.sync.clone('listed/base@s', 'listed/all/c' .. i) end"
# shellcheck disable=SC2086
"$zuse" $lua listed "$dir/p.lua" >/dev/null
for i in $(seq 100); do "$zuse" zfs snapshot -r "listed/all@s$i"; done
cold "$dir/listed.img" list-100-of-each-cold "$zuse" zfs list -t snapshot -o name,creation,used
warm listed/base list-100-of-each-warm "$zuse" zfs list -t snapshot -o name,creation,used
"$zuse" zpool export listed

"$zuse" zpool create -m none tree "$dir/tree.img" --size 4G
"$zuse" zfs create tree/fs
python3 - "$dir/tree" "$files" "$changed" <<'END'
import os, sys
top, files, changed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for name, numbers in (("all", range(files)), ("new", range(0, files, max(files // changed, 1)))):
    for i in numbers:
        folder = f"{top}/{name}/d{i // 1000}"
        if i % 1000 == 0 or name == "new":
            os.makedirs(folder, exist_ok=True)
        with open(f"{folder}/f{i}", "w") as f:
            f.write(f"{name} {i}\n")
END
"$zuse" cp -r "$dir/tree/all/." tree/fs:/
"$zuse" zfs snapshot tree/fs@a
"$zuse" cp -r "$dir/tree/new/." tree/fs:/
"$zuse" zfs snapshot tree/fs@b
cold "$dir/tree.img" diff-cold "$zuse" zfs diff tree/fs@a tree/fs@b
"$zuse" zpool export tree
rm -rf "$dir/tree"

python3 - "$dir/lines" "$json" "$part" <<'END'
import json, os, sys
goals = {"snapshot-recursive": 2, "snapshots-by-program": 2, "destroy-recursive-snapshots": 5, "destroy-by-program": 5,
         "get-all-cold": 3, "list-all-cold": 3, "import": 3, "diff-cold": 1, "get-all-cold-reads": 1500, "list-all-cold-reads": 1500,
         "import-reads": 1500}
rates = {"list-100-of-each-cold": 50000, "list-100-of-each-warm": 150000}
rows = []
for line in open(sys.argv[1]):
    name, *rest = line.split()
    row = {"name": name}
    for figure, unit in zip(rest[::2], rest[1::2]):
        row[{"s": "seconds", "cpu": "cpu_seconds"}.get(unit, unit)] = float(figure) if "." in figure else int(figure)
    if name in rates and row.get("seconds"):
        row["per_second"] = round((row["lines"] - 1) / row["seconds"])
        row["goal_per_second"] = rates[name]
    elif name in goals:
        row["goal"] = goals[name]
    rows.append(row)
with open(sys.argv[2], "w") as out:
    json.dump({"sizes": "small" if sys.argv[3] != "1" else "full", "processors": os.cpu_count(), "rows": rows}, out, indent=1)
print("\n| | s | s of processors | lines | reads | a second | goal |\n|---|---:|---:|---:|---:|---:|---:|")
for row in rows:
    cells = [row.get(key, "") for key in ("seconds", "cpu_seconds", "lines", "reads", "per_second")]
    goal = row.get("goal_per_second", row.get("goal", ""))
    print("| " + " | ".join(str(cell) for cell in (row["name"], *cells, goal)) + " |")
END
