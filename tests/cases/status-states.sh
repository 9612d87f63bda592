#!/usr/bin/env bash
# What `zpool status` prints of a pool in each state, compared with OpenZFS's kernel and zpool 2.3 in the same state. The text is the same
# except for times, sizes, guids and the paths of devices.
HOSTS=1
. "$(dirname "$0")/lib.sh"
unset ZUSE_HOST_LINGER

. "$CASES/states.inc"

disks a b
ok zpool create -m none t mirror "$T/a" "$T/b"
fill
state plain <<'W'
  pool: t
 state: ONLINE
config:

	NAME          STATE     READ WRITE CKSUM
	t             ONLINE       0     0     0
	  mirror-0    ONLINE       0     0     0
	    /pools/a  ONLINE       0     0     0
	    /pools/b  ONLINE       0     0     0

errors: No known data errors
W
ok zpool offline t "$T/a"
state offline -x <<'W'
  pool: t
 state: DEGRADED
status: One or more devices has been taken offline by the administrator.
	Sufficient replicas exist for the pool to continue functioning in a
	degraded state.
action: Online the device using 'zpool online' or replace the device with
	'zpool replace'.
config:

	NAME          STATE     READ WRITE CKSUM
	t             DEGRADED     0     0     0
	  mirror-0    DEGRADED     0     0     0
	    /pools/a  OFFLINE      0     0     0
	    /pools/b  ONLINE       0     0     0

errors: No known data errors
W
ok zpool online t "$T/a"
ok zpool wait -t resilver t
ok zpool offline -f t "$T/a"
state faulted <<'W'
  pool: t
 state: DEGRADED
status: One or more devices are faulted in response to persistent errors.
	Sufficient replicas exist for the pool to continue functioning in a
	degraded state.
action: Replace the faulted device, or use 'zpool clear' to mark the device
	repaired.
  scan: resilvered 0B in 00:00:00 with 0 errors on Sun Nov 29 09:26:33 2026
config:

	NAME          STATE     READ WRITE CKSUM
	t             DEGRADED     0     0     0
	  mirror-0    DEGRADED     0     0     0
	    /pools/a  FAULTED      0     0     0  external device fault
	    /pools/b  ONLINE       0     0     0

errors: No known data errors
W
ok zpool clear t
ok zpool wait -t resilver t
fill 30000000
ok zuse tunables -o zfs_scan_suspend_progress=1 t
ok zpool scrub t
ok zpool scrub -p t
state "scrub paused" <<'W'
  pool: t
 state: ONLINE
  scan: scrub paused since Sun Nov 29 09:26:39 2026
	scrub started on Sun Nov 29 09:26:35 2026
	0B / 8.12M scanned, 0B / 8.12M issued
	0B repaired, 0.00% done
config:

	NAME          STATE     READ WRITE CKSUM
	t             ONLINE       0     0     0
	  mirror-0    ONLINE       0     0     0
	    /pools/a  ONLINE       0     0     0
	    /pools/b  ONLINE       0     0     0

errors: No known data errors
W
says "cannot pause scrubbing t: scrub is paused; use 'zpool scrub' to resume scrub" zpool scrub -p t
ok zpool scrub -s t
state "scrub canceled" <<'W'
  pool: t
 state: ONLINE
  scan: scrub canceled on Sun Nov 29 09:26:43 2026
config:

	NAME          STATE     READ WRITE CKSUM
	t             ONLINE       0     0     0
	  mirror-0    ONLINE       0     0     0
	    /pools/a  ONLINE       0     0     0
	    /pools/b  ONLINE       0     0     0

errors: No known data errors
W
says "cannot cancel scrubbing t: there is no active scrub" zpool scrub -s t
ok zpool export t
mkdir away
mv b away/
is "$(zpool import -d "$T" | plainly | sed -n '3,$p')" " state: DEGRADED
status: One or more devices are missing from the system.
action: The pool can be imported despite missing or damaged devices.  The
	fault tolerance of the pool may be compromised if imported.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-2Q
config:

	t DEGRADED
	  mirror-0 DEGRADED
	    /pools/a ONLINE
	    /pools/b UNAVAIL cannot open" "what can be imported"
ok zpool import -d "$T" t
ok zpool clear t
state missing <<'W'
  pool: t
 state: DEGRADED
status: One or more devices could not be opened.  Sufficient replicas exist for
	the pool to continue functioning in a degraded state.
action: Attach the missing device and online it using 'zpool online'.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-2Q
  scan: scrub canceled on Sun Nov 29 09:26:43 2026
config:

	NAME                      STATE     READ WRITE CKSUM
	t                         DEGRADED     0     0     0
	  mirror-0                DEGRADED     0     0     0
	    /pools/a              ONLINE       0     0     0
	    16950878385000547918  UNAVAIL      0     0     0  was /pools/b

errors: No known data errors
W
ok zpool export t
disks b
ok zpool import -d "$T" t
state "bad label" <<'W'
  pool: t
 state: DEGRADED
status: One or more devices could not be used because the label is missing or
	invalid.  Sufficient replicas exist for the pool to continue
	functioning in a degraded state.
action: Replace the device using 'zpool replace'.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-4J
  scan: scrub canceled on Sun Nov 29 09:26:43 2026
config:

	NAME                      STATE     READ WRITE CKSUM
	t                         DEGRADED     0     0     0
	  mirror-0                DEGRADED     0     0     0
	    /pools/a              ONLINE       0     0     0
	    16950878385000547918  UNAVAIL      0     0     0  was /pools/b

errors: No known data errors
W
ok zpool replace -w t "$T/b"
ok zpool export t
ok zpool import -d "$T" t
state replaced <<'W'
  pool: t
 state: ONLINE
  scan: resilvered 8.22M in 00:00:01 with 0 errors on Sun Nov 29 09:29:02 2026
config:

	NAME          STATE     READ WRITE CKSUM
	t             ONLINE       0     0     0
	  mirror-0    ONLINE       0     0     0
	    /pools/a  ONLINE       0     0     0
	    /pools/b  ONLINE       0     0     0

errors: No known data errors
W
dd if=/dev/zero of="$T/b" bs=1M count=1 conv=notrunc status=none
dd if=/dev/zero of="$T/b" bs=1M seek=95 conv=notrunc count=1 status=none
ok zpool reopen t
state "label gone while open" <<'W'
  pool: t
 state: DEGRADED
status: One or more devices could not be used because the label is missing or
	invalid.  Sufficient replicas exist for the pool to continue
	functioning in a degraded state.
action: Replace the device using 'zpool replace'.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-4J
  scan: resilvered 8.22M in 00:00:01 with 0 errors on Sun Nov 29 09:29:02 2026
config:

	NAME          STATE     READ WRITE CKSUM
	t             DEGRADED     0     0     0
	  mirror-0    DEGRADED     0     0     0
	    /pools/a  ONLINE       0     0     0
	    /pools/b  UNAVAIL      0     0     0  invalid label

errors: No known data errors
W
ok zpool destroy t

disks a b c d
ok zpool create -m none t raidz1 "$T/a" "$T/b" "$T/c"
ok zpool create -m none o "$T/d"
ok zpool export t
ok zpool export o
cp d b
is "$(zpool import -d "$T" 2>&1 | plainly | sed -n '/pool: t/,$p' | sed 2d)" "  pool: t
 state: DEGRADED
status: One or more devices contains corrupted data.
action: The pool can be imported despite missing or damaged devices.  The
	fault tolerance of the pool may be compromised if imported.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-4J
config:

	t DEGRADED
	  raidz1-0 DEGRADED
	    /pools/a ONLINE
	    /pools/b FAULTED corrupted data
	    /pools/c ONLINE" "what can be imported beside another pool's device"
ok zpool import -d "$T" t
state "another pool's device" <<'W'
  pool: t
 state: DEGRADED
status: One or more devices could not be used because the label is missing or
	invalid.  Sufficient replicas exist for the pool to continue
	functioning in a degraded state.
action: Replace the device using 'zpool replace'.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-4J
config:

	NAME                     STATE     READ WRITE CKSUM
	t                        DEGRADED     0     0     0
	  raidz1-0               DEGRADED     0     0     0
	    /pools/a             ONLINE       0     0     0
	    6207760907310087056  FAULTED      0     0     0  was /pools/b
	    /pools/c             ONLINE       0     0     0

errors: No known data errors
W
ok zpool destroy t

disks a b d l c s
ok zpool create -m none t mirror "$T/a" "$T/b" log "$T/l" cache "$T/c" spare "$T/s"
ok zpool export t
is "$(zpool import -d "$T" | plainly | sed -n '/^config/,$p')" "config:

	t ONLINE
	  mirror-0 ONLINE
	    /pools/a ONLINE
	    /pools/b ONLINE
	cache
	  /pools/c
	spares
	  /pools/s
	logs	
	  /pools/l ONLINE" "devices of other kinds in what can be imported"
ok zpool import -d "$T" t
ok zpool destroy t

disks a b s
ok zpool create -m none t mirror "$T/a" "$T/b" spare "$T/s"
fill
ok zpool replace t "$T/b" "$T/s"
ok zpool wait -t resilver t
state "a spare stands in" <<'W'
  pool: t
 state: ONLINE
  scan: resilvered 8.14M in 00:00:11 with 0 errors on Sun Nov 29 10:05:43 2026
config:

	NAME            STATE     READ WRITE CKSUM
	t               ONLINE       0     0     0
	  mirror-0      ONLINE       0     0     0
	    /pools/a    ONLINE       0     0     0
	    spare-1     ONLINE       0     0     0
	      /pools/b  ONLINE       0     0     0
	      /pools/s  ONLINE       0     0     0
	spares
	  /pools/s      INUSE     currently in use

errors: No known data errors
W
ok zpool offline t "$T/b"
state "a spare stands in for one that is offline" <<'W'
  pool: t
 state: DEGRADED
status: One or more devices has been taken offline by the administrator.
	Sufficient replicas exist for the pool to continue functioning in a
	degraded state.
action: Online the device using 'zpool online' or replace the device with
	'zpool replace'.
  scan: resilvered 8.14M in 00:00:11 with 0 errors on Sun Nov 29 10:05:43 2026
config:

	NAME            STATE     READ WRITE CKSUM
	t               DEGRADED     0     0     0
	  mirror-0      DEGRADED     0     0     0
	    /pools/a    ONLINE       0     0     0
	    spare-1     DEGRADED     0     0     0
	      /pools/b  OFFLINE      0     0     0
	      /pools/s  ONLINE       0     0     0
	spares
	  /pools/s      INUSE     currently in use

errors: No known data errors
W
ok zpool detach t "$T/b"
state "a spare that stays" <<'W'
  pool: t
 state: ONLINE
  scan: resilvered 8.14M in 00:00:11 with 0 errors on Sun Nov 29 10:05:43 2026
config:

	NAME          STATE     READ WRITE CKSUM
	t             ONLINE       0     0     0
	  mirror-0    ONLINE       0     0     0
	    /pools/a  ONLINE       0     0     0
	    /pools/s  ONLINE       0     0     0

errors: No known data errors
W
ok zpool split t u
state split <<'W'
  pool: t
 state: ONLINE
  scan: resilvered 2.17M in 00:00:10 with 0 errors on Sun Nov 29 09:27:40 2026
config:

	NAME        STATE     READ WRITE CKSUM
	t           ONLINE       0     0     0
	  /pools/a  ONLINE       0     0     0

errors: No known data errors
W
ok zpool destroy t

disks a
ok zpool create -m none t "$T/a"
ok zpool checkpoint t
state checkpoint <<'W'
  pool: t
 state: ONLINE
checkpoint: created Sun Nov 29 09:37:25 2026, consumes 51K
config:

	NAME        STATE     READ WRITE CKSUM
	t           ONLINE       0     0     0
	  /pools/a  ONLINE       0     0     0

errors: No known data errors
W
ok zpool destroy t
ok zpool create -m none -o version=28 t "$T/a"
state "an old version" <<'W'
  pool: t
 state: ONLINE
status: The pool is formatted using a legacy on-disk format.  The pool can
	still be used, but some features are unavailable.
action: Upgrade the pool using 'zpool upgrade'.  Once this is done, the
	pool will no longer be accessible on software that does not support
	feature flags.
config:

	NAME        STATE     READ WRITE CKSUM
	t           ONLINE       0     0     0
	  /pools/a  ONLINE       0     0     0

errors: No known data errors
W
ok zpool destroy t
ok zpool create -m none -d t "$T/a"
state "without features" <<'W'
  pool: t
 state: ONLINE
status: Some supported and requested features are not enabled on the pool.
	The pool can still be used, but some features are unavailable.
action: Enable all features using 'zpool upgrade'. Once this is done,
	the pool may no longer be accessible by software that does not support
	the features. See zpool-features(7) for details.
config:

	NAME        STATE     READ WRITE CKSUM
	t           ONLINE       0     0     0
	  /pools/a  ONLINE       0     0     0

errors: No known data errors
W
is "$(zpool status -x t)" "pool 't' is healthy" "old features are no illness"
is "$(zpool status -x)" "all pools are healthy" "of all pools"
ok zpool destroy t
