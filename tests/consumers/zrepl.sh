#!/usr/bin/env bash
# zrepl (a Go program): its daemon, and its own platform tests. The daemon takes snapshots, replicates to a second pool and thins out both
# sides. An encrypted file system goes raw, its key is nowhere at the target. A replication goes on after the daemon was killed in it.
# ZREPL=job runs the daemon alone, ZREPL=tests the platform tests alone, ZREPL='tests NAME…' some of them.
. "$(dirname "$0")/lib.sh"
version=v0.7.0 needs=1.24.13

# The first Go that is new enough; Debian 12's own is not.
for go in go /usr/local/go/bin/go /usr/lib/go-*/bin/go; do
    found=$("$go" env GOVERSION 2>/dev/null) && all="${all:-} $found" || continue
    [ "$(printf '%s\n' "$needs" "${found#go}" | sort -V | head -n 1)" != "$needs" ] || { GO=$go && break; }
done
[ -n "${GO:-}" ] || cannot "needs Go $needs or newer, in PATH or /usr/local/go (here:${all:- none})"

# Kept between runs: both programs, and the list of the tests.
bin=$KEPT/zrepl-$version
PATH=$PATH:$bin
fetched() {
    local module=github.com/zrepl/zrepl@$version from
    # A folder of Go modules cannot be removed without -modcacherw.
    export GOFLAGS='-modcacherw -buildvcs=false' CGO_ENABLED=0
    mkdir -p src "$bin"
    printf 'module x\n' >src/go.mod
    from=$(cd src && "$GO" mod download -json "$module" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    [ -d "$from" ] || return
    cp -r "$from" src/zrepl
    (
        cd src/zrepl && "$GO" build -o "$bin/zrepl" . && "$GO" build -o "$bin/harness" ./internal/platformtest/harness &&
            cp internal/platformtest/tests/generated_cases.go "$bin/cases"
    ) && rm -rf src
}
[ -e "$bin/cases" ] || fetched >build.log 2>&1 || cannot "cannot fetch and build zrepl $version: $(tail -n 1 build.log)"

# The configuration: a tree, an encrypted file system that goes raw, a large one, and one of which only snapshots are taken.
config() {
    cat >zrepl.yml <<END
global:
  logging: [{type: stdout, level: debug, format: human}]
  control: {sockpath: $T/run/control}
  serve: {stdinserver: {sockdir: $T/run/stdinserver}}
jobs:
- {name: sink, type: sink, root_fs: zbackup/sink, serve: {type: local, listener_name: sink}, recv: {placeholder: {encryption: 'off'}}}
- name: push
  type: push
  connect: {type: local, listener_name: sink, client_identity: here}
  filesystems: {'ztank/src<': true, ztank/src/tmp: false}
  snapshotting: {type: manual}
  send: {large_blocks: true, compressed: true, embedded_data: true}
  conflict_resolution: {initial_replication: all}
  pruning:
    keep_sender: [{type: not_replicated}, {type: last_n, count: 2}, {type: regex, regex: ^kept}]
    keep_receiver: [{type: last_n, count: 3}, {type: regex, regex: ^kept}]
- name: secret
  type: push
  connect: {type: local, listener_name: sink, client_identity: secret}
  filesystems: {ztank/secret: true}
  snapshotting: {type: manual}
  send: {encrypted: true}
  pruning: {keep_sender: [{type: last_n, count: 9}], keep_receiver: [{type: last_n, count: 9}]}
- name: large
  type: push
  connect: {type: local, listener_name: sink, client_identity: large}
  filesystems: {ztank/large: true}
  snapshotting: {type: manual}
  send: {bandwidth_limit: {max: $1}}
  pruning: {keep_sender: [{type: last_n, count: 9}], keep_receiver: [{type: last_n, count: 9}]}
- name: often
  type: snap
  filesystems: {ztank/often: true}
  snapshotting: {type: periodic, interval: 1s, prefix: auto_}
  pruning: {keep: [{type: last_n, count: 3, regex: ^auto_}, {type: regex, regex: ^own}]}
END
    runs "check$1" zrepl --config zrepl.yml configcheck
}
z() { zrepl --config zrepl.yml "$@"; }

daemon() {
    zrepl --config zrepl.yml daemon >>daemon.out 2>&1 </dev/null &
    DAEMON=$!
    for _ in $(seq 100); do z status --mode raw >/dev/null 2>&1 && return; sleep 0.1; done
    differs "the daemon does not answer: $(tail -n 3 daemon.out)"
}

# Commands that still run are killed when the daemon is told to end, and it says so: what it said before that counts.
stops() {
    [ -z "${KEEP:-}" ] || cp daemon.out "$KEEP"
    is "$(grep -c ' \[ERRO\]' daemon.out)" 0 "errors in the daemon's log: $(grep ' \[ERRO\]' daemon.out | head -n 3)"
    kill "$DAEMON"
    wait "$DAEMON"
    is "$?" 0 "status of the daemon"
    rm daemon.out
}

# What is known of a push job: when its last run began, and the states of replication and of both prunings.
cat >state.py <<'END'
import json, sys
job = json.load(sys.stdin)["Jobs"][sys.argv[1]]["push"]
replication = job["Replication"] or {}
attempt = (replication.get("Attempts") or [{}])[-1]
pruned = [(job[side] or {}).get("State", "-") for side in ("PruningSender", "PruningReceiver")]
print(replication.get("StartAt", "-"), attempt.get("State", "-"), *pruned)
for fs in attempt.get("Filesystems") or []:
    for error in filter(None, (fs["PlanError"], fs["StepError"])):
        print(fs["Info"]["Name"], error["Err"], file=sys.stderr)
END
state() { z status --mode raw | python3 state.py "$1" 2>errors.out; }
# Wakes a job, and waits until it has run from start to end.
wakes() {
    local before got=
    before=$(state "$1" | cut -d ' ' -f 1)
    runs wakeup z signal wakeup "$1"
    for _ in $(seq 300); do
        got=$(state "$1")
        [ "${got%% *}" = "$before" ] || [[ ! $got =~ \ (done|filesystem-error|planning-error)\ (Done|.*Err)\ (Done|.*Err)$ ]] || break
        sleep 0.1
    done
    is "${got#* }" 'done Done Done' "what became of job $1 ($(head -n 3 errors.out))"
}

# What is in a file system, without those below it: names, modes, sizes, links, attributes and sums.
content() {
    (
        cd "$1" || exit
        find . -xdev ! -type d -printf '%p %y %m %u %g %s %l %n %T@\n' | sort
        find . -xdev -type d -printf '%p %y %m %u %g\n' | sort
        find . -xdev -type f -exec md5sum {} + | sort
        find . -xdev -exec getfattr -dhm- {} + | sort
    )
}
# zrepl mounts nothing that it receives: it is read through a mount of its newest snapshot.
same() {
    local newest
    newest=$(zfs list -H -t snapshot -o name -s createtxg "$2" | tail -n 1)
    mkdir -p look
    ok mount -t zfs "$newest" look
    is "$(diff <(content "/$1") <(content look) | head -n 5)" '' "$2 beside /$1"
    ok umount look
}
points() { zfs list -H -t snapshot -o name,guid -s createtxg "$1" | sed 's/.*@//'; }
fill() { head -c 2M /dev/urandom >"$1/$2" && mkdir "$1/dir-$2" && ln -s "$2" "$1/dir-$2/link" && setfattr -n user.of -v "$2" "$1/$2"; }
names() { zfs list -H -t snapshot -o name -s createtxg "$1" 2>/dev/null | sed 's/.*@//' | tr '\n' ' '; }

job() {
    installed
    pools ztank zbackup
    for fs in src src/a src/tmp large often; do ok zfs create "ztank/$fs"; done
    ok zfs create -o compression=zstd -o recordsize=1M ztank/src/a/b
    ok zfs create -V 16M ztank/src/vol
    ok zfs create -o canmount=off zbackup/sink
    (umask 77 && echo 'a long passphrase' >key)
    ok zfs create -o encryption=on -o keyformat=passphrase -o keylocation="file://$T/key" ztank/secret
    mkdir -p -m 700 run run/stdinserver
    config 1GiB
    daemon
    says ztank/src/vol z test filesystems --job push --all
    first_and_further
    raw
    thinned
    killed
    stops
    for pool in ztank zbackup; do ok zpool export "$pool"; done
    ended ztank zbackup
}

trees='src src/a src/a/b'
there() {
    for fs in $trees; do same "ztank/$fs" "zbackup/sink/here/ztank/$fs"; done
    for fs in $trees src/vol; do
        is "$(points "zbackup/sink/here/ztank/$fs" | tail -n 2)" "$(points "ztank/$fs" | tail -n 2)" "newest snapshots of $fs, names and guids"
    done
}

first_and_further() {
    for fs in $trees; do fill "/ztank/$fs" one; done
    ok zfs snapshot -r ztank/src@kept
    for fs in $trees; do fill "/ztank/$fs" two; done
    ok zfs snapshot -r ztank/src@s1
    wakes push
    there
    for n in 2 3 4; do
        for fs in $trees; do echo "$n" >"/ztank/$fs/more$n"; rm -f "/ztank/$fs/more$((n - 1))"; done
        ok zfs snapshot -r "ztank/src@s$n"
        wakes push
        there
    done
    for fs in $trees src/vol; do
        is "$(names "ztank/$fs")" 'kept s3 s4 ' "snapshots of ztank/$fs"
        is "$(names "zbackup/sink/here/ztank/$fs")" 'kept s2 s3 s4 ' "those at the target"
        is "$(zfs list -H -t bookmark -o name "ztank/$fs" | sed 's/.*#//; s/_G_[0-9a-f]*//')" zrepl_CURSOR_J_push "bookmarks of ztank/$fs"
        is "$(zfs holds -H "zbackup/sink/here/ztank/$fs@s4" | cut -f 2)" zrepl_last_received_J_sink "what holds the last at the target"
    done
    is "$(zfs list -H -o name zbackup/sink/here/ztank/src/tmp 2>&1)" \
        "cannot open 'zbackup/sink/here/ztank/src/tmp': dataset does not exist" "what the filter leaves out"
    runs placeholder z test placeholder --all
    is "$(grep -c '^yes.*zbackup/sink/here/ztank.on$' placeholder.out)" 1 "the placeholder: $(cat placeholder.out)"
    runs abstractions z zfs-abstraction list
    is "$(grep -c replication-cursor abstractions.out) $(grep -c last-received-hold abstractions.out)" '4 4' "cursors and holds that it finds"
}

# Without the key at the target, and again with it.
raw() {
    local copy=zbackup/sink/secret/ztank/secret
    fill /ztank/secret one
    ok zfs snapshot ztank/secret@one
    wakes secret
    fill /ztank/secret two
    ok zfs snapshot ztank/secret@two
    wakes secret
    is "$(points "$copy")" "$(points ztank/secret | tail -n 2)" "snapshots of what went raw"
    is "$(zfs get -H -o value keystatus "$copy")" unavailable "its key"
    fails 1 zfs send "$copy@two"
    ok zfs load-key -L "file://$T/key" "$copy"
    same ztank/secret "$copy"
    ok zfs unload-key "$copy"
}

# It began long ago: nothing of it is older than the last three by now.
thinned() {
    ok zfs snapshot ztank/often@own
    local seen
    seen=$(zfs list -H -o name -t snapshot ztank/often | sed 's/.*@//' | grep auto | tail -n 1)
    for _ in $(seq 200); do
        sleep 0.1
        grep -qwF "$seen" <<<"$(names ztank/often)" || break
    done
    is "$(names ztank/often | tr ' ' '\n' | grep -cwF "$seen")" 0 "snapshots that are thinned out"
    is "$(names ztank/often | tr ' ' '\n' | grep -c own)" 1 "those that are not its own"
    seen=$(names ztank/often | tr ' ' '\n' | grep -c auto)
    # One may have been taken since it thinned them out.
    [ "$seen" = 3 ] || [ "$seen" = 4 ] || differs "$seen snapshots are left of which it should keep three"
}

killed() {
    local copy=zbackup/sink/large/ztank/large
    ok zfs set compression=off ztank/large
    head -c 32M /dev/urandom >/ztank/large/file
    ok zfs snapshot ztank/large@one
    stops
    config 4MiB
    daemon
    runs wakeup z signal wakeup large
    for _ in $(seq 100); do
        sleep 0.1
        [ "$(zfs get -H -p -o value used "$copy" 2>/dev/null || echo 0)" -lt 6000000 ] || break
    done
    kill -KILL "$DAEMON"
    wait "$DAEMON" 2>/dev/null
    # The receiver hears of it at the end of its input.
    for _ in $(seq 200); do pgrep -f 'zfs (send|recv) ' >/dev/null || break; sleep 0.1; done
    token=$(zfs get -H -o value receive_resume_token "$copy")
    [ "${#token}" -gt 20 ] || differs "no token after the kill: '$token'"
    runs decoded z test decoderesumetoken --token "$token"
    is "$(grep -c 'ztank/large@one' decoded.out)" 1 "what it reads in the token: $(cat decoded.out)"
    config 1GiB
    daemon
    wakes large
    is "$(grep -c "started command.* send -t $token" daemon.out)" 1 "sends that go on from the token"
    same ztank/large "$copy"
    is "$(zfs get -H -o value receive_resume_token "$copy")" - "the token afterwards"
    is "$(points "$copy")" "$(points ztank/large)" "its snapshots"
}

# Its own tests, each in a pool of its own; some queue others. A test that is skipped wants a ZFS without encryption.
skipped='^SendArgsValidationEncryptedSendOfUnencryptedDatasetForbidden__EncryptionSupported_false$'
tests() {
    local pool=zreplplatformtest name code right=0 wrong=0 passed # some of them look for this name
    [ $# -gt 0 ] || mapfile -t set < <(sed -n 's/.*Cases = \[\]Case{//; s/^\t*\([A-Z][A-Za-z_]*\),$/\1/p' "$bin/cases")
    [ $# -gt 0 ] || set -- "${set[@]}"
    for name in "$@"; do
        code=0
        timeout 120 harness -poolname $pool -imagepath "$T/$pool.img" -mountpoint "$T/$pool" -zfs.zpool-export-timeout 10s \
            -run "tests\\.$name\$" >"$name.out" 2>&1 </dev/null || code=$?
        passed=$(grep -c 'TEST PASSED' "$name.out")
        right=$((right + passed))
        if [ "$code" != 0 ]; then
            wrong=$((wrong + 1))
            differs "zrepl's test $name: $code: $(grep -A 6 -m 1 -E 'panic while|Error:' "$name.out")"
            [ -z "${KEEP:-}" ] || cp "$name.out" "$KEEP"
        elif [[ $name =~ $skipped ]]; then
            is "$(grep -c 'TEST SKIPPED' "$name.out") $passed" '1 0' "tests of $name that are skipped, and others"
        elif [ "$passed" = 0 ] || grep -q 'TEST SKIPPED' "$name.out"; then
            differs "zrepl's test $name: $passed passed, $(grep -c 'TEST SKIPPED' "$name.out") skipped"
        fi
        ! zpool list -H "$pool" >/dev/null 2>&1 || zpool destroy "$pool"
    done
    rm -f /tmp/zreplplatformtest.encryption.passphrase
    echo "zrepl: $right of its tests right, $wrong wrong"
    [ "$right" -ge $(($# - 1)) ] || differs "only $right of its tests were right"
    ended
}

has getfattr:attr
# shellcheck disable=SC2086
set -- ${ZREPL:-all}
case $1 in
    all) tests && job ;;
    job | tests) "$@" ;;
    *) cannot "no such part: $1" ;;
esac
