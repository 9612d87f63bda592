#!/usr/bin/env bash
# The socket of a mount's process. Seventy silent clients blocked every command. A socket that another user had put into the state
# directory was trusted, and got the command line with the standard streams.
. "$(dirname "$0")/lib.sh"

disk p.img
mkdir m
zpool create -O mountpoint=none p p.img
zuse mount p m
socket=$(ls "$XDG_STATE_HOME"/zuse/run/*.sock)
cat >silent.py <<'PY'
import socket, sys, time
held = []
for i in range(70):
    one = socket.socket(socket.AF_UNIX)
    one.connect(sys.argv[1])
    if i % 2:
        one.send(b'\x00\x00\x01')
    held.append(one)
print('there', flush=True)
time.sleep(60)
PY
python3 silent.py "$socket" >said &
clients=$!
for _ in $(seq 50); do [ -s said ] && break; sleep 0.1; done
ok timeout 4 zfs create p/a
ok timeout 4 zfs list p/a
kill $clients
# A request that announces much and breaks off takes no memory, and ends.
python3 - "$socket" <<'PY'
import array, os, socket, struct, sys
for length in (0, 1 << 24, 0xffffffff):
    one = socket.socket(socket.AF_UNIX)
    one.connect(sys.argv[1])
    fds = array.array('i', [0, 1, 2])
    one.sendmsg([struct.pack('<I', length)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    one.close()
PY
ok timeout 4 zfs create p/b
ok zuse umount m
ok zpool export p

# Another user's directory, one that others may write to, one below such a directory, another user's link.
fresh() { rm -rf s; mkdir -p s/zuse; chmod 755 s; chmod 700 s/zuse; export XDG_STATE_HOME=$T/s; }
refused='the state directory is not safe'
fresh
silent "$refused" zpool list
fresh
chown 65533 s/zuse
says "$refused" zpool list
fresh
chmod 777 s/zuse
says "$refused" zpool list
fresh
chmod 777 s
says "$refused" zpool list
fresh
mkdir s/zuse/run
chown 65533 s/zuse/run
says "$refused" zpool list
fresh
mv s/zuse real
ln -s "$T/real" s/zuse
silent "$refused" zpool list
chown -h 65533 s/zuse
says "$refused" zpool list
fails 1 zpool list

# A stranger who listens where a holder would: nothing is sent there.
fresh
export XDG_STATE_HOME=$T/s
mkdir -m 700 s/zuse/run
zpool create -O mountpoint=none q "$T/p.img" -f
guid=$(zpool get -H -o value guid q)
cat >stranger.py <<'PY'
import os, socket, sys
one = socket.socket(socket.AF_UNIX)
one.bind(sys.argv[1])
os.chown(sys.argv[1], 0, 0)
os.setuid(65533)
one.listen()
print('there', flush=True)
peer, _ = one.accept()
print('got', len(peer.recv(100)), flush=True)
PY
python3 stranger.py "$T/s/zuse/run/$guid.sock" >said 2>&1 &
for _ in $(seq 50); do [ -s said ] && break; sleep 0.1; done
timeout 10 zfs create q/a >out 2>&1
sleep 0.3
is "$(grep -c 'got [1-9]' said)" 0 'what a stranger was sent'
