#!/usr/bin/env bash
# What a command reads from its standard input is read by the process that does the work. A program was read here, then sent
# to the mount's process, which read again, found nothing, and ran an empty program with status 0. So for every other
# command that reads there: keys, streams.
. "$(dirname "$0")/lib.sh"

disk p.img 512M
mkdir m
zpool create -O mountpoint=none p p.img
zfs create p/data
zfs snapshot p/data@one
zfs send p/data@one >stream
check() {
    is "$(echo 'return 7' | zfs program p - | grep -c 'return: 7')" 1 "program ($1)"
    echo password1 | zfs create -o encryption=on -o keyformat=passphrase "p/$1" || differs "create ($1)"
    zfs receive "p/$1r" <stream || differs "receive ($1)"
    is "$(zfs list -H -o name "p/$1r@one")" "p/$1r@one" "what was received ($1)"
    echo password1 | zfs load-key -n "p/$1" >/dev/null || differs "load-key -n ($1)"
    echo wrong-one | zfs load-key -n "p/$1" >/dev/null 2>&1 && differs "a wrong key ($1)"
}
check here
zuse mount p m
check there
echo password2 | zfs change-key p/there || differs 'change-key'
echo password2 | zfs load-key -n p/there >/dev/null || differs 'the new key'
echo password1 | zfs load-key p/here || differs 'load-key'
is "$(zfs get -H -o value keystatus p/here)" available keystatus
ok zuse umount m
