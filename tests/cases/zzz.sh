HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER
N=${N:-1000}
truncate -s 4G $T/d; zpool create -m $T/p p $T/d
python3 - $N > prog.lua <<'P'
import sys
print("for i=1,%d do zfs.sync.snapshot('p@x'..i) end" % 1)
P
for i in $(seq 1 $((N/1000))); do zfs create -u p/g$i; done
t=$SECONDS; python3 - $N <<'P'
import subprocess,sys,os
from concurrent.futures import ThreadPoolExecutor
n=int(sys.argv[1])
def make(i): subprocess.run(["zfs","create","-u",f"p/g{i%max(1,n//1000)+1}/d{i}"],check=True)
with ThreadPoolExecutor(16) as e: list(e.map(make,range(n)))
P
echo created in $((SECONDS-t)) s
zpool export p; gone
for k in 1; do s=$(date +%s.%N); zpool import -d $T/d p; e=$(date +%s.%N); echo import $(echo "$e-$s"|bc) mounts $(mounts|wc -l)
H=$(hosts); grep -E "VmRSS|VmHWM|Threads" /proc/$H/status; ls /proc/$H/fd | wc -l
a=$(awk '{print $14+$15}' /proc/$H/stat); sleep 10; b=$(awk '{print $14+$15}' /proc/$H/stat); echo "ticks in 10 s at rest: $((b-a))"
s=$(date +%s.%N); zfs list >/dev/null; e=$(date +%s.%N); echo list $(echo "$e-$s"|bc)
s=$(date +%s.%N); df -a >/dev/null; e=$(date +%s.%N); echo df $(echo "$e-$s"|bc); grep -E "VmRSS|Threads" /proc/$H/status
s=$(date +%s.%N); zpool export p; e=$(date +%s.%N); echo export $(echo "$e-$s"|bc); gone; done
mkdir b; mkdir $(seq -f "b/%g" 1 $N); s=$(date +%s.%N); python3 -c "
import ctypes,os
l=ctypes.CDLL(None)
for i in range(1,$N+1): l.mount(b'/tmp',b'b/%d'%i,None,4096,None)
"; e=$(date +%s.%N); echo "bind mounts $(echo "$e-$s"|bc)"; grep -c " $T/b/" /proc/mounts; umount b/* 2>/dev/null
