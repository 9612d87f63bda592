#!/usr/bin/env bash
# The output for pools that lack a spare, a cache or a log device, compared with OpenZFS's kernel and zpool 2.3.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER
. "$CASES/states.inc"

disks a b s c l p e
ok zpool create -f -m none t mirror "$T/a" "$T/b" special "$T/p" dedup "$T/e" log "$T/l" cache "$T/c" spare "$T/s"
ok zpool export t
mkdir away
whole="  pool: t
 state: ONLINE
action: The pool can be imported using its name or numeric identifier.
config:

	t ONLINE
	  mirror-0 ONLINE
	    /pools/a ONLINE
	    /pools/b ONLINE
	cache
	  /pools/c
	spares
	  /pools/s
	dedup	
	  /pools/e ONLINE
	special	
	  /pools/p ONLINE
	logs	
	  /pools/l ONLINE"
is "$(listed)" "$whole" "a listing of each class"
mv s away/
is "$(listed)" "$whole" "a listing without the spare"
ok zpool import -d "$T" t
state "a spare is missing" <<'W'
  pool: t
 state: ONLINE
config:

	NAME                STATE     READ WRITE CKSUM
	t                   ONLINE       0     0     0
	  mirror-0          ONLINE       0     0     0
	    /pools/a  ONLINE       0     0     0
	    /pools/b  ONLINE       0     0     0
	dedup	
	  /pools/e    ONLINE       0     0     0
	special	
	  /pools/p    ONLINE       0     0     0
	logs	
	  /pools/l    ONLINE       0     0     0
	cache
	  /pools/c    ONLINE       0     0     0
	spares
	  /pools/s    UNAVAIL   cannot open

errors: No known data errors
W
is "$(zpool status -x t)" "pool 't' is healthy" "a spare may be missing"
ok zpool export t
mv away/s .
mv c away/
is "$(listed)" "${whole/$'\n'action:*numeric identifier./
status: One or more devices are missing from the system.
action: The pool can be imported using its name or numeric identifier.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-2Q}" "a listing without the cache device"
ok zpool import -d "$T" t
state "a cache device is missing" -x <<'W'
  pool: t
 state: ONLINE
status: One or more devices could not be opened.  Sufficient replicas exist for
	the pool to continue functioning in a degraded state.
action: Attach the missing device and online it using 'zpool online'.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-2Q
config:

	NAME                STATE     READ WRITE CKSUM
	t                   ONLINE       0     0     0
	  mirror-0          ONLINE       0     0     0
	    /pools/a  ONLINE       0     0     0
	    /pools/b  ONLINE       0     0     0
	dedup	
	  /pools/e    ONLINE       0     0     0
	special	
	  /pools/p    ONLINE       0     0     0
	logs	
	  /pools/l    ONLINE       0     0     0
	cache
	  /pools/c    UNAVAIL      0     0     0  cannot open
	spares
	  /pools/s    AVAIL   

errors: No known data errors
W
ok zpool export t
mv away/c .
mv l away/
is "$(zpool import -d "$T" t 2>&1 | plainly | head -n 3)" "cannot import 't': one or more devices is currently unavailable
The devices below are missing or corrupted, use '-m' to import the pool anyway:
	    /pools/l [log]" "an import without the log device"
mv away/l .
ok zpool import -d "$T" t
ok zpool destroy t

# What was done to devices before the export.
disks a b n
ok zpool create -m none t mirror "$T/a" "$T/b"
fill
ok zpool offline t "$T/a"
ok zpool export t
despite="The pool can be imported despite missing or damaged devices.  The
	fault tolerance of the pool may be compromised if imported."
is "$(listed)" "  pool: t
 state: DEGRADED
status: One or more devices are offlined.
action: $despite
config:

	t DEGRADED
	  mirror-0 DEGRADED
	    /pools/a OFFLINE
	    /pools/b ONLINE" "a listing with a device that is offline"
ok zpool import -d "$T" t
ok zpool online t "$T/a"
ok zpool wait -t resilver t
ok zpool offline -f t "$T/b"
ok zpool export t
is "$(listed)" "  pool: t
 state: DEGRADED
status: One or more devices are faulted.
action: $despite
config:

	t DEGRADED
	  mirror-0 DEGRADED
	    /pools/a ONLINE
	    /pools/b FAULTED corrupted data" "a listing with a device that was taken out as faulty"
ok zpool import -d "$T" t
ok zpool clear t
ok zpool wait -t resilver t
ok zuse tunables -o zfs_scan_suspend_progress=1 t
ok zpool replace t "$T/a" "$T/n"
state "a replacement that has not begun" <<'W'
  pool: t
 state: ONLINE
status: One or more devices is currently being resilvered.  The pool will
	continue to function, possibly in a degraded state.
action: Wait for the resilver to complete.
  scan: resilver in progress since Sun Nov 29 23:25:14 2026
	0B / 3.02M scanned, 0B / 3.02M issued
	0B resilvered, 0.00% done, no estimated completion time
config:

	NAME             STATE     READ WRITE CKSUM
	t                ONLINE       0     0     0
	  mirror-0       ONLINE       0     0     0
	    replacing-0  ONLINE       0     0     0
	      /pools/a   ONLINE       0     0     0
	      /pools/n   ONLINE       0     0     0
	    /pools/b     ONLINE       0     0     0

errors: No known data errors
W
ok zpool export t
is "$(listed)" "  pool: t
 state: ONLINE
status: One or more devices were being resilvered.
action: The pool can be imported using its name or numeric identifier.
config:

	t ONLINE
	  mirror-0 ONLINE
	    replacing-0 ONLINE
	      /pools/a ONLINE
	      /pools/n ONLINE
	    /pools/b ONLINE" "a listing during a resilver"
ok zpool import -d "$T" t
ok zpool wait -t resilver t
ok zpool destroy t

# One of two is online again, then the other one; a resilver was held at its begin.
disks a b c d
ok zpool create -m none t mirror "$T/a" "$T/b" mirror "$T/c" "$T/d"
ok zpool offline t "$T/a"
ok zpool offline t "$T/c"
fill
ok zuse tunables -o zfs_scan_suspend_progress=1 t
ok zpool online t "$T/a"
state "a resilver beside a device that is offline" <<'W'
  pool: t
 state: DEGRADED
status: One or more devices is currently being resilvered.  The pool will
	continue to function, possibly in a degraded state.
action: Wait for the resilver to complete.
  scan: resilver in progress since Sun Nov 29 23:27:24 2026
	0B / 5.91M scanned, 0B / 5.91M issued
	0B resilvered, 0.00% done, no estimated completion time
config:

	NAME          STATE     READ WRITE CKSUM
	t             DEGRADED     0     0     0
	  mirror-0    ONLINE       0     0     0
	    /pools/a  ONLINE       0     0     0
	    /pools/b  ONLINE       0     0     0
	  mirror-1    DEGRADED     0     0     0
	    /pools/c  OFFLINE      0     0     0
	    /pools/d  ONLINE       0     0     0

errors: No known data errors
W
ok zpool online t "$T/c"
says "currently resilvering" zpool scrub t
ok zuse tunables -o zfs_scan_suspend_progress=0 t
ok zpool wait -t resilver t
ok zpool destroy t
