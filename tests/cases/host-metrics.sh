#!/usr/bin/env bash
# Figures for monitoring, in the text format of Prometheus: printed, and served on a socket of this machine only.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk d
ok zpool create -m "$T/p" p "$T/d"
ok zfs create -o quota=10M p/a
head -c 1000000 /dev/urandom >p/a/f
ok zpool sync p
zuse host metrics >page || differs "metrics"
value() { awk -v m="$1" 'index($0, m " ") == 1 { print $NF }' page; }
is "$(value 'zfs_pool_size_bytes{pool="p"}')" "$(zpool get -Hp -o value size p)" "the size"
is "$(value 'zfs_pool_health{pool="p"}')" 0 "the health"
is "$(value 'zfs_pool_readonly{pool="p"}')" 0 "readonly"
is "$(value 'zfs_dataset_used_bytes{name="p/a",pool="p",type="filesystem"}')" "$(zfs get -Hp -o value used p/a)" "used"
is "$(value 'zfs_dataset_quota_bytes{name="p/a",pool="p",type="filesystem"}')" 10485760 "the quota"
is "$(value 'zuse_pool_up{pool="p"}')" 1 "up"
[ "$(value 'zuse_device_operations_total{pool="p",operation="write"}')" -gt 0 ] || differs "writes"
awk -v s="$(value 'zuse_device_seconds_total{pool="p",operation="write"}')" 'BEGIN { exit !(s > 0) }' || differs "their time"
is "$(grep -c zuse_scan page)" 0 "a scan that there was not"
ok zpool scrub -w p
zuse host metrics >page || differs "metrics"
is "$(value 'zuse_scan_state{pool="p",function="scrub"}') $(value 'zuse_scan_errors{pool="p",function="scrub"}')" "2 0" "the scrub"
[ "$(value 'zuse_scan_bytes{pool="p",function="scrub",what="examined"}')" -gt 1000000 ] || differs "what it examined"
# Each line is a comment or NAME{LABELS} NUMBER.
is "$(grep -cvE '^(# (HELP|TYPE) .*|[a-z_][a-z0-9_]*\{[^}]*\} [0-9.e+-]+)$' page)" 0 "lines that are none"
zuse host metrics --listen "$T/socket" &
for _ in $(seq 50); do [ -S socket ] && break; sleep 0.1; done
python3 - "$T/socket" <<'P' || differs "the socket"
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b"GET /metrics HTTP/1.1\r\nHost: here\r\n\r\n")
page = b""
while piece := s.recv(65536):
    page += piece
head, _, body = page.partition(b"\r\n\r\n")
assert head.startswith(b"HTTP/1.1 200"), head
assert f"Content-Length: {len(body)}".encode() in head and b"zfs_pool_size_bytes" in body, page[:300]
# A silent client does not block the others.
silent = socket.socket(socket.AF_UNIX)
silent.connect(sys.argv[1])
silent.close()
P
is "$(stat -c %a socket)" 600 "the socket's mode"
# Another one does not take its place; a socket that a dead one has left is replaced, and nothing else is.
says "cannot listen on '$T/socket'" timeout 5 zuse host metrics --listen "$T/socket"
kill -9 %1
wait %1 2>/dev/null
zuse host metrics --listen "$T/socket" &
ask() { python3 -c 'import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); s.sendall(b"GET / HTTP/1.1\r\n\r\n"); print(s.recv(12))' "$T/socket" 2>/dev/null; }
for _ in $(seq 50); do ask >said && break; sleep 0.1; done
is "$(cat said)" "b'HTTP/1.1 404'" "an answer on a socket that was replaced"
kill $!
echo kept >file
says "cannot listen on '$T/file'" timeout 5 zuse host metrics --listen "$T/file"
is "$(cat file)" kept "a file in the place of the socket"
fails 2 zuse host metrics --listen 192.0.2.1:9134
ok zpool export p
