#!/usr/bin/env bash
# A snapshot that is mounted and in use stays, and so do the others of the same command. The refusal names it.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

disk d
ok zpool create -m "$T/p" p "$T/d"
for i in one two three; do
    echo $i >p/f
    ok zfs snapshot p@$i
done
mkdir s
ok zuse mount p@two "$T/s"
exec 9<s/f
is "$(zfs destroy p@one,two,three 2>&1)" 'cannot destroy snapshot p@two: dataset is busy' "the refusal"
is "$(zfs list -H -o name -t snapshot p | tr '\n' ' ')" 'p@one p@two p@three ' "what is left"
is "$(cat <&9)" two "the open file"
exec 9<&-
ok zfs destroy p@one,two,three
is "$(zfs list -H -o name -t snapshot p)" '' "nothing is in use"
ok zpool destroy p
