#!/usr/bin/env bash
# A full host, and the holder of a pool. The pool is suspended, nothing that was acknowledged is lost, and every command gets an answer.
# The pool continues after 'zpool clear', or ends on request. Freed space is punched out of the image. One process holds a pool, and the
# others reach it.
set -euo pipefail
cd "$(dirname "$0")/../.."
top=$PWD

[ -e /dev/fuse ] || { echo "suspend: needs /dev/fuse" >&2; exit 1; }
[ "$(id -u)" = 0 ] || { echo "suspend: needs root, for a small file system that can be full" >&2; exit 1; }
scripts/openzfs-oracle "${ORACLE:-$top/target/oracle}"

host=$SUITE_TMP/host mnt=$SUITE_TMP/mnt plain=$SUITE_TMP/plain
export XDG_STATE_HOME=$SUITE_TMP/state
mkdir -p "$host" "$mnt" "$plain"
holder= writer=
cleanup() {
    [ -z "$holder" ] || kill -KILL "$holder" 2>/dev/null || true
    [ -z "$writer" ] || kill -KILL "$writer" 2>/dev/null || true
    umount -l "$mnt" 2>/dev/null || true
    umount -l "$host" 2>/dev/null || true
}
trap cleanup EXIT

fail() { echo "suspend: $*" >&2; exit 1; }
step() { echo "--- $*"; }
# A command of zuse that must answer soon.
soon() { timeout 10 "$ZUSE" "$@"; }
state() { soon zpool list -H -o health tank; }
wait_state() { # state, what
    for _ in $(seq 300); do
        [ "$(state)" != "$1" ] || return 0
        sleep 0.2
    done
    fail "$2: not $1 after a minute, but $(state)"
}
mounted() {
    "$ZUSE" mount --foreground tank "$mnt" >"$SUITE_TMP/holder.log" 2>&1 &
    holder=$!
    for _ in $(seq 200); do
        mountpoint -q "$mnt" && return 0
        kill -0 "$holder" 2>/dev/null || { cat "$SUITE_TMP/holder.log" >&2; fail "the pool does not mount"; }
        sleep 0.05
    done
    fail "not mounted after 10 s"
}
# The holder ends by itself within half a minute; its exit code is in $code.
ended() { # what
    for _ in $(seq 300); do
        if ! kill -0 "$holder" 2>/dev/null; then
            code=0
            wait "$holder" || code=$?
            holder=
            return 0
        fi
        sleep 0.1
    done
    fail "$1: the holder is there after 30 s"
}
# Writes files of 4 MiB, each fsynced; a name is noted only after its fsync has returned.
work() { # prefix
    local i=0
    while [ ! -e "$SUITE_TMP/stop" ]; do
        i=$((i + 1))
        head -c 4M /dev/urandom >"$SUITE_TMP/data"
        dd if="$SUITE_TMP/data" of="$mnt/$1$i" bs=128K conv=fsync status=none || return 0
        echo "$(sha256sum <"$SUITE_TMP/data" | cut -d' ' -f1)  $1$i" >>"$SUITE_TMP/safe"
    done
}
start() { rm -f "$SUITE_TMP/stop"; work "$1" 2>/dev/null & writer=$!; }
check_safe() { (cd "$mnt" && sha256sum --quiet -c "$SUITE_TMP/safe") || fail "$1: acknowledged, but lost or changed"; }
sound() { # directory, what
    scripts/zdb-check "$1" tank -bcc >"$SUITE_TMP/zdb.txt" 2>&1 || { tail -n 20 "$SUITE_TMP/zdb.txt" >&2; fail "$2: zdb does not pass"; }
}

mount -t tmpfs -o size=300M tmpfs "$host"
: >"$SUITE_TMP/safe"
"$ZUSE" zpool create -m none tank "$host/tank.img" --size 1G
"$ZUSE" zfs set compression=off tank

step "full, failmode=wait"
mounted
head -c 160M /dev/zero >"$host/ballast"
start w
wait_state SUSPENDED "writing to a full host"
soon zpool status tank >"$SUITE_TMP/status"
grep -q 'state: SUSPENDED' "$SUITE_TMP/status" || fail "zpool status does not say SUSPENDED"
grep -q "no space left on device" "$SUITE_TMP/status" || fail "zpool status does not say why"
grep -q "zpool clear" "$SUITE_TMP/status" || fail "zpool status does not say what to do"
soon zpool list tank >"$SUITE_TMP/out"
soon zfs list -r tank >"$SUITE_TMP/out"
soon zfs get compression tank >"$SUITE_TMP/out"
before=$(wc -l <"$SUITE_TMP/safe")
soon zpool clear tank || fail "zpool clear while the host is still full"
wait_state SUSPENDED "cleared while the host is still full"
sleep 2
[ "$(wc -l <"$SUITE_TMP/safe")" = "$before" ] || fail "an fsync was acknowledged while the pool was suspended"
kill -0 "$writer" || fail "failmode=wait does not make writers wait"

step "suspended: unmount and export refuse"
if soon zfs unmount tank 2>"$SUITE_TMP/err"; then fail "zfs unmount of a suspended pool"; else code=$?; fi
[ $code = 1 ] || fail "zfs unmount of a suspended pool: $code: $(cat "$SUITE_TMP/err")"
if soon zpool export tank 2>"$SUITE_TMP/err"; then fail "zpool export of a suspended pool"; else code=$?; fi
[ $code = 1 ] && grep -q "suspended" "$SUITE_TMP/err" || fail "zpool export of a suspended pool: $code: $(cat "$SUITE_TMP/err")"

step "room again"
touch "$SUITE_TMP/stop"
rm "$host/ballast"
soon zpool clear tank
timeout 60 tail --pid="$writer" -f /dev/null || fail "the writer does not go on after zpool clear"
writer=
wait_state ONLINE "after zpool clear"
[ "$(wc -l <"$SUITE_TMP/safe")" = $((before + 1)) ] || fail "the blocked write was not finished"
check_safe "after zpool clear"
timeout 60 "$ZUSE" zpool export tank || fail "export after zpool clear"
ended "export"
sound "$host" "after zpool clear"

step "full, failmode=continue"
"$ZUSE" zpool import -d "$host" tank
"$ZUSE" zpool set failmode=continue tank
mounted
head -c 400M /dev/zero >"$host/ballast" 2>/dev/null || true
# All of it may be dirty already when the host turns out to be full: it has to fit once there is room again.
if timeout 60 dd if=/dev/urandom of="$mnt/c" bs=1M count=40 conv=fsync status=none 2>"$SUITE_TMP/err"; then
    fail "a write to a full host was acknowledged"
fi
grep -qi "input/output error" "$SUITE_TMP/err" || fail "failmode=continue: $(cat "$SUITE_TMP/err")"
wait_state SUSPENDED "failmode=continue"
if timeout 10 mkdir "$mnt/new" 2>"$SUITE_TMP/err"; then fail "mkdir in a suspended pool"; else code=$?; fi
[ $code = 1 ] || fail "mkdir in a suspended pool with failmode=continue: $code"
timeout 20 ls -l "$mnt" >"$SUITE_TMP/out" || fail "ls in a suspended pool with failmode=continue"
echo 3 >/proc/sys/vm/drop_caches 2>/dev/null || true
(cd "$mnt" && timeout 60 sha256sum --quiet -c "$SUITE_TMP/safe") || fail "healthy data cannot be read with failmode=continue"
rm "$host/ballast"
soon zpool clear tank
wait_state ONLINE "after zpool clear"
timeout 60 dd if=/dev/urandom of="$mnt/c" bs=1M count=8 conv=fsync status=none || fail "writing after zpool clear"
check_safe "failmode=continue, after zpool clear"
"$ZUSE" zpool set failmode=wait tank
timeout 60 "$ZUSE" zpool export tank
ended "export"
sound "$host" "failmode=continue"

for how in SIGTERM export; do
    step "full, ended by $how"
    "$ZUSE" zpool import -d "$host" tank
    mounted
    head -c 400M /dev/zero >"$host/ballast" 2>/dev/null || true
    start "$how"
    wait_state SUSPENDED "before $how"
    if [ $how = SIGTERM ]; then
        kill -TERM "$holder"
    elif timeout 30 "$ZUSE" zpool export -f tank 2>"$SUITE_TMP/err"; then
        fail "zpool export -f of a suspended pool claims success"
    fi
    touch "$SUITE_TMP/stop"
    ended "$how"
    [ $how = export ] || [ $code != 0 ] || fail "$how of a suspended pool: the holder claims success"
    timeout 10 tail --pid="$writer" -f /dev/null || fail "$how: the writer still waits"
    writer=
    sound "$host" "after $how"
    rm "$host/ballast"
    mounted
    check_safe "after $how"
    timeout 60 "$ZUSE" zpool export tank
    ended "export"
    sound "$host" "after $how and another mount"
done

step "a command that holds the pool for itself ends with an error"
head -c 400M /dev/zero >"$host/ballast" 2>/dev/null || true
"$ZUSE" zpool import -d "$host" tank || fail "import on a full host"
head -c 60M /dev/urandom >"$SUITE_TMP/data"
code=0
timeout 60 "$ZUSE" cp "$SUITE_TMP/data" tank:/copied 2>"$SUITE_TMP/err" || code=$?
[ $code = 1 ] || fail "zuse cp to a full host: $code: $(cat "$SUITE_TMP/err")"
rm "$host/ballast"
"$ZUSE" zpool export tank
sound "$host" "after zuse cp"

step "freed space is punched out of the image"
# What was removed is freed in the background.
settled() {
    for _ in $(seq 100); do
        "$ZUSE" zpool sync tank
        [ "$("$ZUSE" zpool list -Hp -o allocated tank)" -gt $((20 << 20)) ] || return 0
        sleep 0.1
    done
    fail "removed files are not freed"
}
used() { du -k "$plain/tank.img" | cut -f1; }
"$ZUSE" zpool create -m none tank "$plain/tank.img" --size 512M
"$ZUSE" zfs set compression=off tank
mounted
base=$(used)
head -c 100M /dev/urandom >"$mnt/a"
"$ZUSE" zpool sync tank
[ "$(used)" -gt $((base + 100000)) ] || fail "100 MiB written, $(used) KiB used"
rm "$mnt/a"
settled
[ "$(used)" -gt $((base + 90000)) ] || fail "space is punched out without being asked to"
head -c 50M /dev/urandom >"$mnt/b"
"$ZUSE" zpool sync tank
rm "$mnt/b"
settled
"$ZUSE" zpool trim -w tank
[ "$(used)" -lt $((base + 10000)) ] || fail "zpool trim left $(used) KiB"
"$ZUSE" zpool set autotrim=on tank
head -c 100M /dev/urandom >"$mnt/a"
head -c 8M /dev/urandom >"$mnt/keep"
sum=$(sha256sum <"$mnt/keep")
sync -f "$mnt/keep"
"$ZUSE" zpool sync tank
[ "$(used)" -gt $((base + 100000)) ] || fail "108 MiB written, $(used) KiB used"
rm "$mnt/a"
settled
for i in 1 2 3 4; do mkdir "$mnt/t$i"; "$ZUSE" zpool sync tank; done
[ "$(used)" -lt $((base + 20000)) ] || fail "autotrim left $(used) KiB"
kill -KILL "$holder"
ended "SIGKILL"
umount -l "$mnt"
sound "$plain" "autotrim, killed"
mounted
[ "$(sha256sum <"$mnt/keep")" = "$sum" ] || fail "a kept file changed with autotrim"

step "one process holds a pool"
# By name and by its devices: both are answered by the holder, which knows what is not on disk yet.
soon zfs set "test:forwarded=yes" tank
[ "$(soon --in "$plain" zfs get -H -o value test:forwarded tank)" = yes ] || fail "--in does not reach the holder"
soon ls -d "$plain" tank:/ | grep -q keep || fail "-d does not reach the holder"
# Without the way to the holder the pool cannot be opened.
code=0
XDG_STATE_HOME=$SUITE_TMP/stranger XDG_RUNTIME_DIR=$SUITE_TMP/stranger timeout 60 "$ZUSE" --in "$plain" zfs set test:second=yes tank 2>"$SUITE_TMP/err" || code=$?
case $code in
0) [ "$(soon zfs get -H -o value test:second tank)" = yes ] || fail "a second process wrote a pool that is held" ;;
1) ;;
*) fail "a second process that opens a held pool: $code: $(cat "$SUITE_TMP/err")" ;;
esac
timeout 60 "$ZUSE" zpool export tank
ended "export"
sound "$plain" "after forwarding"
"$ZUSE" zpool import -d "$plain" tank
mkdir "$SUITE_TMP/mnt2"
for round in 1 2 3 4 5; do
    "$ZUSE" mount tank "$mnt" 2>"$SUITE_TMP/err1" & one=$!
    "$ZUSE" mount tank "$SUITE_TMP/mnt2" 2>"$SUITE_TMP/err2" & two=$!
    wait $one || fail "race $round: $(cat "$SUITE_TMP/err1")"
    wait $two || fail "race $round: $(cat "$SUITE_TMP/err2")"
    echo "round $round" >"$mnt/raced"
    [ "$(cat "$SUITE_TMP/mnt2/raced")" = "round $round" ] || fail "race $round: the two mounts differ"
    timeout 60 "$ZUSE" umount "$mnt"
    timeout 60 "$ZUSE" umount "$SUITE_TMP/mnt2"
done
timeout 60 "$ZUSE" zpool export tank
sound "$plain" "after the races"
echo "$(wc -l <"$SUITE_TMP/safe") files fsynced, none lost"
