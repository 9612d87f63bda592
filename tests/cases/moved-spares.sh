#!/usr/bin/env bash
# The devices of a pool were moved to another directory. Spares and cache devices were still looked for at their former paths.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

mkdir before
for d in a b c s u; do disk "before/$d" 96M; done
ok zpool create -m none p mirror "$T/before/a" "$T/before/b" cache "$T/before/c" spare "$T/before/s" "$T/before/u"
ok zpool export p
mv before after
is "$(zpool import -d "$T/after" | sed -n '/cache/,$p' | sed "s,$T/,,")" "	cache
	  after/c
	spares
	  after/s
	  after/u" "what can be imported"
ok zpool import -d "$T/after" p
is "$(zpool status p | sed -n '/cache/,/^$/p' | sed "s,$T/,,")" "	cache
	  after/c    ONLINE       0     0     0
	spares
	  after/s    AVAIL   
	  after/u    AVAIL   " "the devices of an imported pool"
ok zpool offline -f p "$T/after/a"
ok zpool replace p "$T/after/a" "$T/after/s"
ok zpool wait -t resilver p
# Both are on disk: an idle spare, and one that is in use.
ok zpool export p
mv after last
ok zpool import -d "$T/last" p
is "$(zpool status p | sed -n '/spares/,/^$/p' | sed "s,$T/,,")" "	spares
	  last/s      INUSE     currently in use
	  last/u      AVAIL   " "the spare stands in"
ok zpool detach p "$T/last/s"
ok zpool export p
says "No leaks" zdb -e -p "$T/last" -bcc p
