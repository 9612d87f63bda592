#!/bin/bash
# Keys were lost. When an encryption root changed, the children of its clones, and clones of those, kept the old wrapping.
. "$(dirname "$0")/lib.sh"

disk d0
key() { zfs create -o encryption=on -o keyformat=passphrase "$2" <<<"$1"; }
new() {
    zfs unmount -a 2>/dev/null
    zpool destroy tank 2>/dev/null
    zpool create -f -O mountpoint="$T/m" tank "$T/d0"
    zfs mount tank
}
put() { echo "$1" >"$T/m/${1#tank/}/f"; }
roots() { zfs get -r -t filesystem -H -o name,value encryptionroot tank | awk '$2 != "-" { printf "%s=%s ", $1, $2 }' | sed 's/tank//g'; }
again() {
    zfs unmount -a
    zpool export tank
    zpool import -d "$T" tank
    zfs mount tank
}
reads() { # the file of each dataset
    local d
    zfs mount -a 2>/dev/null
    for d in "$@"; do
        is "$(cat "$T/m/${d#tank/}/f" 2>&1)" "$d" "the file of $d"
    done
}

new                                   # a new key for a root: what its clones hold elsewhere follows
key password1 tank/p; zfs create tank/p/a; zfs snapshot tank/p/a@1
zfs clone tank/p/a@1 tank/p/in; zfs create tank/p/in/B; put tank/p/in/B
zfs clone tank/p/a@1 tank/out; zfs create tank/out/C; put tank/out/C; zfs create tank/out/C/D; put tank/out/C/D
zfs snapshot tank/out/C@1; zfs clone tank/out/C@1 tank/out2; zfs create tank/out2/E; put tank/out2/E
zfs change-key tank/p <<<password9 || differs "change-key $?"
again
zfs load-key tank/p <<<password9 || differs "load-key $?"
reads tank/p/in/B tank/out/C/D tank/out2/E

new                                   # an inherited key: so does the child of a clone
key password1 tank/p; key password2 tank/p/child
zfs snapshot tank/p/child@a; zfs clone tank/p/child@a tank/p/clone; zfs create tank/p/clone/B; put tank/p/clone/B
ok zfs change-key -i tank/p/child
is "$(roots)" "/p=/p /p/child=/p /p/clone=/p /p/clone/B=/p " "roots after change-key -i"
again
zfs load-key tank/p <<<password1 || differs "load-key $?"
reads tank/p/clone/B

new                                   # promoted twice along a chain of clones
key password1 tank/f; zfs snapshot tank/f@1; zfs clone tank/f@1 tank/c1; zfs snapshot tank/c1@2; zfs clone tank/c1@2 tank/c2
for d in f/child0 c1/child1 c2/child2; do zfs create "tank/$d"; put "tank/$d"; done
ok zfs promote tank/c2
is "$(roots)" "/c1=/f /c1/child1=/f /c2=/f /c2/child2=/f /f=/f /f/child0=/f " "roots after the first promotion"
ok zfs promote tank/c2
is "$(roots)" "/c1=/c2 /c1/child1=/c2 /c2=/c2 /c2/child2=/c2 /f=/c2 /f/child0=/c2 " "roots after the second"
again
zfs load-key tank/c2 <<<password1 || differs "load-key $?"
reads tank/f/child0 tank/c1/child1 tank/c2/child2
zfs unmount -a
zpool destroy tank
