#!/usr/bin/env bash
# Standard input of a command is read by the process that runs it. Before, a program was read here and then sent to the mount's process.
# That process read again, found nothing, and ran an empty program with status 0. The same held for other commands that read standard input:
# keys, streams.
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
