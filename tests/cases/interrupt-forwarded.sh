#!/usr/bin/env bash
# Ctrl-C on a command that a mount's process runs ended the command, but not its work. A receive continued, a send filled its file, 'zpool
# iostat 1' printed for ever.
. "$(dirname "$0")/lib.sh"

disk p.img 2G
mkdir m
zpool create -O mountpoint=none p p.img
head -c 250M /dev/urandom >big
zuse cp big p:/
zfs snapshot p@1
zfs send p@1 >stream
# Without a mount: the same.
code=0
{ head -c 100000000 stream; sleep 2; } | timeout -s INT 1 zfs receive p/local || code=$?
[ "$code" != 0 ] || differs 'a receive that was interrupted ended well'
fails 1 zfs list p/local
zuse mount p m
# A stream that comes slowly, and one that does not come at all.
timeout -s INT 0.3 zfs receive p/file <stream
sleep 2 | timeout -s INT 0.5 zfs receive p/none
{ head -c 100000000 stream; sleep 2; } | timeout -s INT 1 zfs receive p/part
sleep 1
for name in file none part; do fails 1 zfs list "p/$name"; done
is "$(zfs list -H -o name -r p | tr '\n' ' ')" 'p ' 'what is left'
timeout -s INT 0.15 zfs send p@1 >sent
timeout -s INT 0.5 zpool iostat p 1 >shown
sleep 0.5
before=$(stat -c %s sent shown)
sleep 2.2
is "$(stat -c %s sent shown)" "$before" 'what goes on growing'
ok zfs create p/after
ok zuse umount m
