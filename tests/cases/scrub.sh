#!/usr/bin/env bash
# A scrub continues in the pool's host after the command has ended, and after an export and SIGKILL. It repairs a device that was
# overwritten with noise while the pool was in use. It names what it cannot repair, and finds nothing the second time.
HOSTS=1
. "$(dirname "$0")/lib.sh"

noise() { dd if=/dev/urandom of="$T/$1" bs=1M seek=5 count="$2" conv=notrunc status=none; }
scan() { zpool status "$1" | sed -n 's/^  scan: //p'; }

disk a 128M
disk b 128M
ok zpool create -m none -O compression=off tank mirror "$T/a" "$T/b"
ok zfs create tank/fs
dd if=/dev/urandom of=big bs=1M count=40 status=none
ok zuse cp big tank/fs:/big
ok zfs snapshot tank/fs@s
silent scan: zpool status tank
fails 1 zpool scrub -s tank
says "cannot cancel scrubbing tank: there is no active scrub" zpool scrub -s tank
is "$(zpool scrub -p tank 2>&1; echo $?)" 0 "nothing to pause"
ok zpool scrub tank
ok zpool wait -t scrub tank
is "$(scan tank | sed 's/ in .*with/ with/; s/ on .*//')" "scrub repaired 0B with 0 errors" "a whole pool"

noise b 100
ok zpool scrub -w tank
case "$(scan tank)" in
    *" repaired 0B "* | *" with 0 errors "*) ;;
    *) differs "a device of noise: $(scan tank)" ;;
esac
silent " repaired 0B " zpool status tank
ok zpool scrub -w tank
is "$(scan tank | sed 's/ in .*with/ with/; s/ on .*//')" "scrub repaired 0B with 0 errors" "the second time"
# The other device is not needed any more.
noise a 100
ok zpool export tank
ok zpool import -d "$T" tank
ok bash -c "zuse cat tank/fs:/big | cmp - big"

# Killed in the middle, it is done by the next host; a date in the future leaves nothing to do.
ok zpool scrub tank
kill -9 $(hosts) 2>/dev/null
ok zpool status tank
ok zpool wait -t scrub tank
case "$(scan tank)" in
    "scrub repaired"*" with 0 errors "*) ;;
    *) differs "killed in the middle: $(scan tank)" ;;
esac
ok zpool scrub -w -C tank
ok zpool scrub -w -S 2020-01-01 -E "2037-02-03 04:05" tank
fails 2 zpool scrub -S yesterday tank
fails 2 zpool scrub -s -p tank
ok zpool destroy tank

# One device: what is lost is named, also in the snapshot that has it.
disk c
ok zpool create -m none -O compression=off one "$T/c"
ok zfs create one/fs
python3 -c "print('MARKER-ABC'*20000, end='')" >f
ok zuse cp f one/fs:/f
ok zfs snapshot one/fs@s
ok zpool export one
python3 - c <<'P'
import sys
data = open(sys.argv[1], 'rb').read()
at = data.find(b'MARKER-ABC' * 50, 4 << 20)
with open(sys.argv[1], 'r+b') as f:
    f.seek(at + 100)
    f.write(b'XXXX')
P
ok zpool import -d "$T" one
ok zpool scrub -w one
says "with 1 errors" zpool status one
says "one/fs:/f" zpool status -v one
says "one/fs@s:/f" zpool status -v one
# It can be read again: the scrub of errors takes it out of the log.
python3 - c <<'P'
import sys
data = open(sys.argv[1], 'rb').read()
with open(sys.argv[1], 'r+b') as f:
    f.seek(data.find(b'XXXX', 4 << 20))
    f.write(b'MARK')
P
ok zpool scrub -e -w one
says "errors: No known data errors" zpool status -v one
ok zpool export one

# Without a host the command does it itself, and says so.
export ZUSE_HOST_LINGER=0
gone
ok zpool import -d "$T" one
says "has no host" zpool scrub one
case "$(scan one)" in
    "scrub repaired 0B"*" with 0 errors "*) ;;
    *) differs "without a host: $(scan one)" ;;
esac
ok zpool export one
