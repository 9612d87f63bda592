#!/usr/bin/env bash
# Devices are initialized and trimmed in the background: states, messages, and that the work continues after the next open.
. "$(dirname "$0")/lib.sh"
for d in a b; do disk $d 96M; done
ok zpool create -m none tank mirror "$T/a" "$T/b"
says "cannot initialize '$T/a': there is no active initialization" zpool initialize -c tank
fails 255 zpool initialize -s tank
ok zpool initialize -u tank
says "cannot initialize 'nosuch': no such device in pool" zpool initialize tank nosuch
says "cannot initialize 'mirror-0': invalid device" zpool initialize tank mirror-0
says "-w cannot be used with -c, -sor -u" zpool initialize -c -w tank
says "-s cannot be combined with other options" zpool initialize -cs tank
ok zpool initialize -w tank "$T/a"
says "(100% initialized, completed at" zpool status -i tank
says "(uninitialized)" zpool status -i tank
ok zpool initialize -u tank "$T/a"
silent "completed at" zpool status -i tank
used=$(du -k "$T/a" | cut -f1)
[ "$used" -gt 60000 ] || differs "only $used KiB were written"

# So slow that it is under way still.
ok zpool trim -r 1 tank
says "cannot trim '$T/a': currently trimming" zpool trim tank
says "trimmed, started at" zpool status -t tank
ok zpool export tank
ok zpool import -d "$T" tank
ok zpool trim -s tank
says "trimmed, suspended, started at" zpool status -t tank
ok zpool trim -w tank
says "(100% trimmed, completed at" zpool status -t tank
used=$(du -k "$T/a" | cut -f1)
[ "$used" -lt 20000 ] || differs "$used KiB are left"
says "cannot trim '$T/a': there is no active trim" zpool trim -c tank
says "invalid value for rate" zpool trim -r x tank
fails 255 zpool trim -d tank
ok timeout 20 zpool wait -t initialize,trim tank
says "No leaks" zdb -bcc tank
