#!/usr/bin/env bash
# Devices are attached, taken offline and back, replaced, detached and split off, and spares stand in. Two writers and a comparing reader
# run meanwhile, and each operation is interrupted by SIGKILL of the host at a seeded moment. The next host continues. Nothing that was
# fsynced is lost, a final scrub is clean, and OpenZFS's zdb finds nothing. ROUNDS (2) times; `scripts/soak exchange`: ten.
# only where it is asked for: the suite `exchange` runs it, with more time than a case has
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER
top=$(cd "$CASES/../.." && pwd)
RANDOM=${SEED:-5}

# Writes files, and puts a name into `safe` once its fsync has returned; reads what is there and compares. Ends with the mount.
cat >load.py <<'P'
import hashlib, os, random, sys, threading
mount, safe, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
done, lock, promised = threading.Event(), threading.Lock(), []
def fails(f):
    try:
        f()
    except OSError:
        done.set()
def writer(k):
    r, i = random.Random(seed * 2 + k), 0
    while not done.is_set():
        i += 1
        name, data = f"{seed}-{k}-{i % 40}-{i}", r.randbytes(r.choice((300, 5000, 70000, 400000)))
        fd = os.open(f"{mount}/{name}", os.O_WRONLY | os.O_CREAT, 0o644)
        os.write(fd, data)
        os.fsync(fd)
        os.close(fd)
        with lock:
            promised.append((name, hashlib.sha256(data).hexdigest()))
            open(safe, "a").write(f"{promised[-1][1]}  {name}\n")
def reader():
    r = random.Random(seed)
    while not done.is_set():
        with lock:
            one = r.choice(promised) if promised else None
        if one and hashlib.sha256(open(f"{mount}/{one[0]}", "rb").read()).hexdigest() != one[1]:
            open(safe + ".bad", "a").write(f"read: {one}\n")
threads = [threading.Thread(target=fails, args=(f,)) for f in (lambda: writer(0), lambda: writer(1), reader)]
[t.start() for t in threads]
[t.join() for t in threads]
P

# Two files are there for sure, then the command begins, and within so many hundredths of a second the host is gone.
struck() { # hundredths, command…
    local most=$1 before load
    shift
    step=$((step + 1)) before=$(wc -l <safe)
    python3 load.py "$T/m" "$T/safe" $((seed + step)) &
    load=$!
    for _ in $(seq 100); do [ "$(wc -l <safe)" -lt $((before + 2)) ] || break; sleep 0.05; done
    "$@" >out 2>&1 &
    sleep "$(printf '0.%02d' $((RANDOM % most)))"
    kill -9 $(hosts) 2>/dev/null
    kill -9 $load
    wait 2>/dev/null
    tree >/dev/null
}
tree() { zpool status "${1:-p}" | awk '/NAME/ { on = 1; next } !NF || $1 == "spares" { on = 0 } on { printf "%s%s %s", sep, $1, $2; sep = ", " } END { print "" }' | sed "s,$T/,,g"; }
# Comes to rest as the tree that is wanted; what was not begun before the blow is done then.
rests() { # tree, command…
    local wanted=$1 got
    shift
    for _ in $(seq 60); do
        got=$(tree)
        [ "$got" != "$wanted" ] || return 0
        if [ $# -gt 0 ]; then
            "$@" >out 2>&1 </dev/null || true
        fi
        zpool wait -t resilver,replace p >/dev/null 2>&1
        zpool sync p
        sleep 0.05
    done
    differs "round $round, step $step: '$got' instead of '$wanted': $(head -c 200 out)"
}
same() { # directory
    (cd "$1" && sort -u -k2,2 "$T/safe" | sha256sum --quiet -c -) >sums 2>&1 || differs "round $round: $1: $(head -n 3 sums)"
    [ ! -e safe.bad ] || differs "round $round: a reader got other bytes: $(head -n 3 safe.bad)"
}
clean() { # pool
    ok zpool scrub -w "$1"
    ok zpool scrub -w "$1"
    says "scan: scrub repaired 0B in" zpool status "$1"
    says "with 0 errors on" zpool status "$1"
    says "errors: No known data errors" zpool status "$1"
}

for round in $(seq "${ROUNDS:-2}"); do
    step=0 seed=$((${SEED:-5} * 1000 + round * 100))
    rm -f a b c s
    for d in a b c s; do disk $d 96M; done
    rm -f safe safe.bad
    : >safe
    ok zpool create -m "$T/m" p "$T/a"
    ok zpool add -f p spare "$T/s"

    struck 30 zpool attach p "$T/a" "$T/b"
    rests "p ONLINE, mirror-0 ONLINE, a ONLINE, b ONLINE" zpool attach p "$T/a" "$T/b"

    ok zpool offline p "$T/b"
    struck 30 zpool online p "$T/b"
    rests "p ONLINE, mirror-0 ONLINE, a ONLINE, b ONLINE" zpool online p "$T/b"

    struck 30 zpool replace p "$T/b" "$T/c"
    rests "p ONLINE, mirror-0 ONLINE, a ONLINE, c ONLINE" zpool replace p "$T/b" "$T/c"

    # A spare steps in by itself, and back when its device is well again.
    struck 60 zpool offline -f p "$T/c"
    rests "p DEGRADED, mirror-0 DEGRADED, a ONLINE, spare-1 DEGRADED, c FAULTED, s ONLINE" zpool offline -f p "$T/c"
    struck 30 zpool clear p "$T/c"
    rests "p ONLINE, mirror-0 ONLINE, a ONLINE, c ONLINE" zpool clear p "$T/c"
    same "$T/m"

    struck 10 zpool detach p "$T/a"
    rests "p ONLINE, c ONLINE" zpool detach p "$T/a"
    ok zpool attach -w p "$T/c" "$T/b"

    ok zpool remove p "$T/s"
    struck 10 zpool split p q
    rests "p ONLINE, c ONLINE" zpool split p q
    same "$T/m"
    clean p
    ok zpool export p
    mkdir -p zp zq
    mv c zp/
    mv b zq/
    says "sound" "$top/scripts/zdb-check" "$T/zp" p -bcc
    ok zpool import -d "$T/zq" -o cachefile=none q
    clean q
    ok zpool export q
    says "sound" "$top/scripts/zdb-check" "$T/zq" q -bcc
    rm -rf zp zq
    [ "$(wc -l <safe)" -ge 14 ] || differs "round $round: only $(wc -l <safe) files were written"
    echo "round $round: $(wc -l <safe) files"
done
