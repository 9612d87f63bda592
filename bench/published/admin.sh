#!/usr/bin/env bash
# What administration costs on pools with very many datasets and snapshots. Prints one line per measurement:
#
#   NAME seconds [figures]
#
#   ZUSE=target/release/zuse bench/published/admin.sh DIR      DIR: a folder with 2 GB of room
#
# FILESYSTEMS (400), SNAPSHOTS (100 of each), OTHERS (600), MANY (10000) change the sizes. Device reads are counted by strace where
# it is installed. "cold" is a new process that opens the pool; the host's own cache of the image file stays warm.
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
say list-snapshots-cold "$zuse" zfs list -t snapshot -o name,creation,used
say destroy-recursive-snapshots "$zuse" zfs destroy -r many/all@r
say destroy-by-program program many "for d in zfs.list.children('many/all') do zfs.sync.destroy(d .. '@p') end"
"$zuse" zpool export many

"$zuse" zpool create -m none mix "$dir/mix.img" --size 4G
"$zuse" zfs create mix/fs
"$zuse" zfs create mix/other
for i in $(seq "$filesystems"); do "$zuse" zfs create "mix/fs/f$i"; done
for i in $(seq "$others"); do "$zuse" zfs create "mix/other/o$i"; done
from=$(date +%s.%N)
for i in $(seq "$snapshots"); do "$zuse" zfs snapshot -r "mix/fs@s$i"; done
printf 'snapshots-of-filesystems %.2f\n' "$(echo "$(date +%s.%N) - $from" | bc)"
say get-all "$zuse" zfs get all
reads get-all "$zuse" zfs get all
say list-all "$zuse" zfs list -t all -o all
say import sh -c "'$zuse' zpool export mix && '$zuse' zpool import -d '$dir/mix.img' mix"
"$zuse" zpool export mix
