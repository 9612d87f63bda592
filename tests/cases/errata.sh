#!/usr/bin/env bash
# Two faults of old software in pools with encrypted datasets are reported in OpenZFS's words. They are keys of version 0 ("errata 3"),
# and snapshots without IV set guids ("errata 4"). The latter are reported before the import too. The words are those of OpenZFS 2.3's
# commands with these very images. It says "theissue" and "preservingthe" of an imported pool.
HOSTS=1
. "$(dirname "$0")/lib.sh"

for n in 3 4; do zstd -dqc "$CASES/../../testdata/cases/errata$n.img.zst" >"$T/e$n" || exit 2; done
told() { sed -n '/^status/,/^config/p' | sed '$d'; }

is "$(zpool import -d "$T/e4" | told)" "status: Errata #4 detected.
action: Existing encrypted snapshots and bookmarks contain an on-disk
	incompatibility. This may cause on-disk corruption if they are used
	with 'zfs recv'. To correct the issue, enable the bookmark_v2 feature.
	No additional action is needed if there are no encrypted snapshots or
	bookmarks. If preserving the encrypted snapshots and bookmarks is
	required, use a non-raw send to backup and restore them. Alternately,
	they may be removed to resolve the incompatibility.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-ER" "errata 4 before the import"
ok zpool import -d "$T/e4" er4
is "$(zpool status er4 | told)" "status: Errata #4 detected.
	Existing encrypted snapshots and bookmarks contain an on-disk
	incompatibility. This may cause on-disk corruption if they are used
	with 'zfs recv'.
action: To correct the issue, enable the bookmark_v2 feature. No additional
	action is needed if there are no encrypted snapshots or bookmarks.
	If preserving the encrypted snapshots and bookmarks is required, use
	a non-raw send to backup and restore them. Alternately, they may be
	removed to resolve the incompatibility.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-ER" "errata 4"
says "pool: er4" zpool status -x
ok zpool set feature@bookmark_v2=enabled er4
silent Errata zpool status er4

ok zpool import -d "$T/e3" er3
is "$(zpool status er3 | told)" "status: Errata #3 detected.
	Existing encrypted datasets contain an on-disk incompatibility
	 which needs to be corrected.
action: To correct the issue backup existing encrypted datasets to new
	encrypted datasets and destroy the old ones. 'zfs mount -o ro' can
	be used to temporarily mount existing encrypted datasets readonly.
   see: https://openzfs.github.io/openzfs-docs/msg/ZFS-8000-ER" "errata 3"
fails 1 zfs send -w er3/c@1
for pool in er3 er4; do ok zpool export $pool; done
