#!/usr/bin/env bash
# A handover of a pool's mounts that fails. The new process hangs, or it ends and the old program cannot open the pool either. Requests of
# the mounts are answered soon, or fail. The next holder knows the counted errors, and that they
# were too many.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk d
disk e
ok zpool create -m "$T/p" p mirror "$T/d" "$T/e"
head -c 3000000 /dev/urandom >p/kept
ok zpool sync p
# Labels stay whole.
dd if=/dev/urandom of=e bs=1M seek=4 count=240 conv=notrunc 2>/dev/null
ok zpool scrub -w p
errors() { zpool status -p p | awk '$1 ~ /^\// { print $1, $2, $3, $4, $5 }'; }
counted=$(errors)
[ "$(awk -v e="$T/e" '$1 == e { print ($5 > 0 && $2 == "DEGRADED") }' <<<"$counted")" = 1 ] || differs "no errors were counted: $counted"

# It asks for what is handed over in a format, says who it is, and goes no further.
cat >heir.py <<'EOF'
import array, json, os, socket, struct, sys, time
path, form, after = sys.argv[1], int(sys.argv[2]), sys.argv[3]
s = socket.socket(socket.AF_UNIX)
os.chdir(os.path.dirname(path))
s.connect(os.path.basename(path))
null = os.open("/dev/null", os.O_RDWR)
ask = json.dumps({"version": "2 0.0.0", "argv": [list(b"zuse"), list(b"version")], "cwd": list(b"/"), "hand_over": form}).encode()
def pass_on(data, fds):
    s.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
pass_on(struct.pack("<I", len(ask)), [null, null, null])
s.sendall(ask)
answer = s.recv(1)
print(answer.decode(), flush=True)
if answer != b"H": sys.exit(0)
pulse, theirs = socket.socketpair()
pass_on(b"D", [os.pidfd_open(os.getpid())])
pass_on(b"D", [theirs.fileno()])
theirs.close()
got = b""
while len(got) < 17: got += s.recv(4096)
print(*struct.unpack("<QQ", got[:16]), got[16:17].decode(), flush=True)
if after == "hang": time.sleep(100)
EOF
state=$(zuse host list -H 2>/dev/null | head -1)
socket=$(find "$XDG_RUNTIME_DIR" "$XDG_STATE_HOME" -name '*.sock' | head -1)
[ -S "$socket" ] || differs "no socket: $state"
heir() { python3 heir.py "$socket" "$@"; }
settled() { for _ in $(seq 100); do [ "$(hosts | wc -l)" != 1 ] || return 0; sleep 0.1; done; }

is "$(heir 0 end) $(heir 2 end) $(heir 4 end)" "V V V" "formats that this version does not speak"
old=$(hosts)
exec 7<p/kept
heir 3 hang >said &
heir=$!
until grep -q ' p$' said || ! kill -0 $heir 2>/dev/null; do sleep 0.05; done
is "$(xargs <said)" "H 1 1 p" "what is said to who goes on"
began=$SECONDS
ls -l p/kept >/dev/null || differs "a request while nobody goes on"
[ $((SECONDS - began)) -lt 25 ] || differs "it took $((SECONDS - began)) s"
wait $heir 2>/dev/null
settled
[ "$(hosts)" != "$old" ] || differs "another process of the old program goes on"
is "$(errors)" "$counted" "errors after another process went on"
is "$(sha256sum <&7)" "$(sha256sum <p/kept)" "a file that was open"

# Neither can go on: the mounts end, and the next command makes them again.
mv d gone.d
mv e gone.e
(heir 3 end >said) 2>/dev/null
for _ in $(seq 100); do [ -n "$(mounts)" ] || break; sleep 0.1; done
is "$(mounts)" "" "mounts that nobody serves"
cat <&7 >/dev/null 2>&1
exec 7<&-
grep -q 'nobody goes on with the mounts' $(find "$XDG_STATE_HOME" -name '*.log') || differs "what the log says"
mv gone.d d
mv gone.e e
gone
ok zfs list p
ok test -s p/kept
ok zpool export p
gone
is "$(hosts; mounts)" "" "after the export"
