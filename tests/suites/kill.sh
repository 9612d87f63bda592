#!/usr/bin/env bash
# The mounted process is killed at random moments, KILLS (10) times; `make soak` uses 200. After each kill zdb finds nothing wrong with
# the image. Every file that was fsynced has its content, and the pool can be mounted again.
#
#   KILLS=5 KILL_SEED=7 scripts/run-suites kill
# limit: 900
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD
kills=${KILLS:-10}
RANDOM=${KILL_SEED:-1}

[ -e /dev/fuse ] || { echo "kill: needs /dev/fuse" >&2; exit 1; }
scripts/openzfs-oracle "${ORACLE:-$top/target/oracle}"

pools=$SUITE_TMP/pools mnt=$SUITE_TMP/mnt safe=$SUITE_TMP/safe
export XDG_STATE_HOME=$SUITE_TMP/state
mkdir -p "$pools" "$mnt"
: >"$safe"
holder= writer=
cleanup() {
    [ -z "$writer" ] || kill "$writer" 2>/dev/null || true
    [ -z "$holder" ] || kill -KILL "$holder" 2>/dev/null || true
    umount -l "$mnt" 2>/dev/null || fusermount3 -uz "$mnt" 2>/dev/null || true
}
trap cleanup EXIT

"$ZUSE" zpool create -m none killed "$pools/killed.img" --size 256M
"$ZUSE" zfs create killed/child

# Writes files of many sizes, deletes some, snapshots; a name goes into $safe only after its fsync has returned.
work() { # round
    local i=0 file sum dir old
    # Room for what comes: how many files a round makes depends on the machine, so old rounds go whether it is fast or slow.
    for old in "$mnt"/round* "$mnt"/child/round*; do
        [ "${old##*round}" -gt $(($1 - 4)) ] 2>/dev/null || rm -rf "$old" 2>/dev/null || return 0
    done
    while :; do
        i=$((i + 1))
        dir=$mnt/round$1
        [ $((RANDOM % 3)) != 0 ] || dir=$mnt/child/round$1
        mkdir -p "$dir" || return 0
        file=$dir/f$i
        head -c $((RANDOM * (RANDOM % 8 + 1))) /dev/urandom >"$SUITE_TMP/data" || return 0
        if [ $((RANDOM % 2)) = 0 ]; then
            sum=$(sha256sum <"$SUITE_TMP/data" | cut -d' ' -f1)
            dd if="$SUITE_TMP/data" of="$file" bs=64K conv=fsync status=none 2>/dev/null || return 0
            echo "${file#"$mnt"/} $sum" >>"$safe"
        else
            cp "$SUITE_TMP/data" "$file" 2>/dev/null || return 0
            [ $((RANDOM % 3)) != 0 ] || rm -f "$file" 2>/dev/null || return 0
        fi
    done
}

# Everything that was promised: sorted "path sha256" of both datasets.
promised() {
    { "$ZUSE" manifest --sha256 -d "$pools" killed
      "$ZUSE" manifest --sha256 -d "$pools" killed/child | sed 's#"path": *"#&child/#'
    } | sed -n 's/.*"path": *"\([^"]*\)".*"sha256": *"\([0-9a-f]*\)".*/\1 \2/p' | sort >"$SUITE_TMP/have"
    # Old rounds are deleted by later ones, at some moment that is not noted.
    grep -E "(^|/)round($1|$(($1 - 1))|$(($1 - 2)))/" "$safe" | sort >"$SUITE_TMP/want" || true
    comm -23 "$SUITE_TMP/want" "$SUITE_TMP/have" >"$SUITE_TMP/lost"
    if [ -s "$SUITE_TMP/lost" ]; then
        echo "kill $1: fsynced, but lost or changed:" >&2
        head -n 5 "$SUITE_TMP/lost" >&2
        return 1
    fi
}

for round in $(seq "$kills"); do
    "$ZUSE" mount --foreground killed "$mnt" >"$SUITE_TMP/mount.log" 2>&1 &
    holder=$!
    for _ in $(seq 200); do
        if mountpoint -q "$mnt" && mountpoint -q "$mnt/child" 2>/dev/null || [ -d "$mnt/child" ] && mountpoint -q "$mnt"; then break; fi
        kill -0 "$holder" 2>/dev/null || { cat "$SUITE_TMP/mount.log" >&2; echo "kill $round: the pool does not mount" >&2; exit 1; }
        sleep 0.05
    done
    mountpoint -q "$mnt" || { cat "$SUITE_TMP/mount.log" >&2; echo "kill $round: not mounted after 10 s" >&2; exit 1; }
    work "$round" 2>/dev/null &
    writer=$!
    sleep "0.$((RANDOM % 9))$((RANDOM % 10))"
    [ $((round % 5)) != 0 ] || "$ZUSE" zfs snapshot -r "killed@round$round"
    kill -KILL "$holder"
    wait "$holder" 2>/dev/null || true
    holder=
    wait "$writer" 2>/dev/null || true
    writer=
    umount -l "$mnt" 2>/dev/null || fusermount3 -uz "$mnt" 2>/dev/null || true
    option=-bc
    [ $((round % (kills / 5 > 0 ? kills / 5 : 1))) != 0 ] || option=-bcc
    if ! scripts/zdb-check "$pools" killed $option >"$SUITE_TMP/zdb.txt" 2>&1; then
        tail -n 20 "$SUITE_TMP/zdb.txt" >&2
        echo "kill $round: zdb $option does not pass" >&2
        exit 1
    fi
    promised "$round"
    # One snapshot stays, so that what the last rounds deleted is held by it.
    if [ $((round % 5)) = 0 ] && [ "$round" -gt 5 ]; then "$ZUSE" zfs destroy -r "killed@round$((round - 5))"; fi
done
echo "$kills kills, $(wc -l <"$safe") files fsynced"
[ "$(wc -l <"$safe")" -gt "$kills" ]
