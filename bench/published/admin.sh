#!/usr/bin/env bash
# What administration costs on pools with very many datasets and snapshots. Prints one line per measurement:
#
#   NAME seconds [figures]
#
#   ZUSE=target/release/zuse bench/published/admin.sh DIR      DIR: a folder with 2 GB of room
#
# FILESYSTEMS (400), SNAPSHOTS (100 of each), OTHERS (600), MANY (10000), ONE (300), LISTED (100000 snapshots), FILES (200000) and CHANGED
# (2000) change the sizes. Device reads are counted by strace where it is installed. "cold" is a new process that opens the pool,
# the image evicted from the host's page cache before; "warm" is answered by the process that holds the pool for a mount (left out
# where there is no FUSE). The block cache is limited to 64 MB for the pool of the published table; "off" is the same without the
# metadata tier.
set -euo pipefail
[ $# = 1 ] || { echo "usage: admin.sh DIR" >&2; exit 2; }
dir=$1 zuse=${ZUSE:-target/release/zuse}
zuse=$(realpath "$zuse")
filesystems=${FILESYSTEMS:-400} snapshots=${SNAPSHOTS:-100} others=${OTHERS:-600} many=${MANY:-10000}
mkdir -p "$dir"
export XDG_STATE_HOME=$dir/state
rm -rf "$dir/state" "$dir"/*.img

say() { # name command…
    local name=$1 from to
    shift
    from=$(date +%s.%N)
    "$@" >"$dir/out" || { echo "$name failed" >&2; exit 1; }
    to=$(date +%s.%N)
    printf '%s %.2f %s\n' "$name" "$(echo "$to - $from" | bc)" "$(wc -l <"$dir/out") lines"
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
    printf '%s %s device reads\n' "$name" "$(grep -c 'pread' "$dir/trace")"
}
program() { # pool, text
    printf '%s\n' "$2" >"$dir/p.lua"
    "$zuse" zfs program -t 100000000 -m 104857600 "$1" "$dir/p.lua"
}

"$zuse" zpool create -m none many "$dir/many.img" --size 4G
"$zuse" zfs create many/base
"$zuse" zfs snapshot many/base@s
"$zuse" zfs create many/all
say clones-by-program program many "for i = 1, $many do zfs.sync.clone('many/base@s', 'many/all/c' .. i) end"
say snapshot-recursive "$zuse" zfs snapshot -r many/all@r
say snapshots-by-program program many "for d in zfs.list.children('many/all') do zfs.sync.snapshot(d .. '@p') end"
cold "$dir/many.img" list-snapshots-cold "$zuse" zfs list -t snapshot -o name,creation,used
say destroy-recursive-snapshots "$zuse" zfs destroy -r many/all@r
say destroy-by-program program many "for d in zfs.list.children('many/all') do zfs.sync.destroy(d .. '@p') end"
# A dataset takes one snapshot a txg: of one dataset there are fewer.
for i in $(seq "${ONE:-300}"); do "$zuse" zfs snapshot "many/base@n$i"; done
say "destroy-of-one-dataset" "$zuse" zfs destroy "many/base@n1%n${ONE:-300}"
"$zuse" zpool export many

"$zuse" zpool create -m none mix "$dir/mix.img" --size 4G
"$zuse" zfs create mix/fs
"$zuse" zfs create mix/other
for i in $(seq "$filesystems"); do "$zuse" zfs create "mix/fs/f$i"; done
for i in $(seq "$others"); do "$zuse" zfs create "mix/other/o$i"; done
from=$(date +%s.%N)
for i in $(seq "$snapshots"); do "$zuse" zfs snapshot -r "mix/fs@s$i"; done
printf 'snapshots-of-filesystems %.2f\n' "$(echo "$(date +%s.%N) - $from" | bc)"
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
cold "$dir/mix.img" import sh -c "'$zuse' zpool export mix && '$zuse' zpool import -d '$dir/mix.img' mix"
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

listed=${LISTED:-100000}
"$zuse" zpool create -m none listed "$dir/listed.img" --size 8G
"$zuse" zfs create listed/base
"$zuse" zfs snapshot listed/base@s
"$zuse" zfs create listed/all
program listed "for i = 1, $((listed / 100)) do zfs.sync.clone('listed/base@s', 'listed/all/c' .. i) end" >/dev/null
for i in $(seq 100); do "$zuse" zfs snapshot -r "listed/all@s$i"; done
cold "$dir/listed.img" list-100-of-each-cold "$zuse" zfs list -t snapshot -o name,creation,used
warm listed/base list-100-of-each-warm "$zuse" zfs list -t snapshot -o name,creation,used
"$zuse" zpool export listed

files=${FILES:-200000} changed=${CHANGED:-2000}
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
