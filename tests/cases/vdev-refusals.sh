#!/usr/bin/env bash
# Vdevs that `zpool create` and `zpool add` refuse, in the words of OpenZFS's zpool 2.3 (each line of both tables was given to it). What
# it says is behind the bar, `~` is `mismatched replication level:`; with nothing there it goes ahead. A dry run checks as much as the
# command does.
. "$(dirname "$0")/lib.sh"

for d in a b c d e f g h i j k l m n o p q r s; do disk $d 96M; done
disk big 200M
disk tiny 32M
paths() { for word; do case $word in ? | big | tiny) echo "$T/$word" ;; *) echo "$word" ;; esac done; }
# What is said without the lines that lead to it, in one line; nothing where it would be done.
said() {
    case $1 in would*) return ;; esac
    grep -vxE "invalid vdev specification|use '-f' to override the following errors:" <<<"$1" | sed 's/^mismatched replication level:/~/; s/$/; /' | tr -d '\n' | sed 's/; $//'
}

while IFS='|' read -r words wanted; do
    is "$(said "$(zpool create -n x $(paths $words) 2>&1 </dev/null)")" "$wanted" "create $words"
done <<'TABLE'
raidz2 a b c d special mirror e f|~ raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present
mirror a b special mirror c d e|~ both 2-way and 3-way mirror vdevs are present
mirror a b special raidz1 c d e|invalid vdev specification: unsupported 'special' device: raidz
mirror a b special raidz2 c d e f|invalid vdev specification: unsupported 'special' device: raidz
raidz1 a b c special mirror d e|
raidz2 a b c d special mirror e f g|
raidz1 a b c special mirror d e f|~ raidz and mirror vdevs with different redundancy, 1 vs. 2 (3-way) are present
raidz1 a b c special d|~ both raidz and file vdevs are present
a special mirror b c|~ both file and mirror vdevs are present
mirror a b dedup c|~ both mirror and file vdevs are present
mirror a b log c|
raidz2 a b c d log mirror e f|
mirror a b c raidz1 d e f|~ raidz and mirror vdevs with different redundancy, 1 vs. 2 (3-way) are present
mirror a b raidz2 c d e f|~ raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present
mirror a b raidz1 c d e|
raidz1 a b c mirror d e f|~ raidz and mirror vdevs with different redundancy, 1 vs. 2 (3-way) are present
raidz1 a b c mirror d e|
draid1:2d a b c special mirror d e f|~ draid and mirror vdevs with different redundancy, 1 vs. 2 (3-way) are present
draid1:2d a b c special mirror d e|
draid1:2d a b c draid2:2d d e f g|~ draid and draid vdevs with different redundancy, 1 vs. 2 are present
draid1:2d a b c draid1:2d d e f g|
draid1:2d a b c draid1:3d d e f g|
draid2:2d a b c d raidz1 e f g|~ draid and raidz vdevs with different redundancy, 2 vs. 1 are present
draid1:2d a b c raidz1 e f g|
raidz2 a b c d draid1:2d e f g|~ raidz and draid vdevs with different redundancy, 2 vs. 1 are present
mirror a b draid2:2d e f g h|~ draid and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present
mirror a b c draid1:1d d e|~ draid and mirror vdevs with different redundancy, 1 vs. 2 (3-way) are present
raidz1 a b c raidz1 d e f g|
raidz1 a b c raidz2 d e f g|~ raidz and raidz vdevs with different redundancy, 1 vs. 2 are present
mirror a b mirror c d e|~ both 2-way and 3-way mirror vdevs are present
raidz1 a b c special mirror d e dedup mirror f g h|~ both 2-way and 3-way mirror vdevs are present
mirror a b special mirror c d dedup e|~ both mirror and file vdevs are present
mirror a b dedup mirror c d special mirror e f g|~ both 2-way and 3-way mirror vdevs are present
a b special c|
a raidz1 b c d|~ both file and raidz vdevs are present
raidz1 a b c mirror d e mirror f g h|~ both 2-way and 3-way mirror vdevs are present
mirror a b raidz1 c d e mirror f g h|~ raidz and mirror vdevs with different redundancy, 1 vs. 2 (3-way) are present
mirror a b raidz1 c d e raidz2 f g h i|~ raidz and raidz vdevs with different redundancy, 1 vs. 2 are present
raidz1 a b c mirror d e raidz2 f g h i|~ raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present
mirror a big raidz2 b c d e|mirror contains devices of different sizes; ~ raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present
mirror a big mirror b c d|mirror contains devices of different sizes; ~ both 2-way and 3-way mirror vdevs are present
mirror a big mirror c d|mirror contains devices of different sizes
raidz1 a b big|raidz contains devices of different sizes
mirror a b special mirror c big|mirror contains devices of different sizes
mirror a b log mirror c big|
mirror a b log mirror c d e|
mirror a b spare c|
raidz2 a b c d special mirror e f log g cache h|~ raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present
-f mirror a b special draid1:2d c d e|invalid vdev specification: unsupported 'special' device: draid
-f mirror a b log draid1:2d c d e|invalid vdev specification: unsupported 'log' device: draid
-f mirror a b log raidz c d e|invalid vdev specification: unsupported 'log' device: raidz
-f mirror a b cache draid1:1d c d|invalid vdev specification: cache requires at least 1 devices
mirror a b dedup raidz c d e|invalid vdev specification: unsupported 'special' device: raidz
mirror a b raidz1 c d e draid1:1d f g|
a mirror b c d raidz1 e f g|~ both file and mirror vdevs are present; ~ raidz and mirror vdevs with different redundancy, 1 vs. 2 (3-way) are present
raidz1 a b c raidz1 d e f g mirror h i|
raidz3 a b c d e mirror f g h|~ raidz and mirror vdevs with different redundancy, 3 vs. 2 (3-way) are present
raidz3 a b c d e draid3:2d f g h i j|
special mirror a b|at least one general top-level vdev must be specified
a special mirror b c special raidz d e f|invalid vdev specification: unsupported 'special' device: raidz
mirror a b special|
mirror a b special log c|
a mirror b|invalid vdev specification: mirror requires at least 2 devices
draid2:1d a b|invalid vdev specification: draid2:1d requires at least 3 devices
draid1:2d:1s a b c|requested number of dRAID data disks per group 2 is too high,; at most 1 disks are available for data
draid1:9d a b c|requested number of dRAID data disks per group 9 is too high,; at most 2 disks are available for data
raidz1 a|invalid vdev specification: raidz1 requires at least 2 devices
raidz2 a b|invalid vdev specification: raidz2 requires at least 3 devices
mirror a b raidz2 c d e big|raidz contains devices of different sizes; ~ raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present
a mirror b c raidz2 d e f big|~ both file and mirror vdevs are present; raidz contains devices of different sizes; ~ raidz and mirror vdevs with different redundancy, 2 vs. 1 (2-way) are present
a mirror b big|mirror contains devices of different sizes; ~ both file and mirror vdevs are present
log a|at least one general top-level vdev must be specified
draid a b c d e f|
draid1:3d:1s a b c d e f|
draid1:1d:5s a b c d|invalid number of dRAID spares 5; additional disks would be required
draid1:1d:3s a b c d|requested number of dRAID data disks per group 1 is too high,; at most 0 disks are available for data
draid1:2d:6c a b c|invalid number of dRAID children; 6 required but 3 provided
draid1: a b c|invalid dRAID syntax; expected [:<number><c|d|s>] not 'draid1:'
draid1:2d:101s a b c d|invalid number of dRAID spares 101; additional disks would be required
draid1:0d a b c|requested number of dRAID data disks per group 0 is too high,; at most 2 disks are available for data
draid1:2d:3c:0s a b c|
draid a|invalid vdev specification: draid requires at least 2 devices
draid1:1d a|invalid vdev specification: draid1:1d requires at least 2 devices
draid1:3d a b c|requested number of dRAID data disks per group 3 is too high,; at most 2 disks are available for data
draid1:2d a b big|draid contains devices of different sizes
a log|invalid vdev specification: log requires at least 1 device
-f special a|the following errors must be manually repaired:; at least one general top-level vdev must be specified
a spare log b|invalid vdev specification: spare requires at least 1 devices
a log spare b|invalid vdev specification: log requires at least 1 device
a cache|invalid vdev specification: cache requires at least 1 devices
draid1:4s a b c d|request number of distributed spares 4 and parity level 1; leaves no disks available for data
draid1:2d:6c a|invalid vdev specification: draid1:2d:6c requires at least 2 devices
draid1:2d:x3c a b c|invalid dRAID syntax; expected [:<number><c|d|s>] not 'draid1:2d:x3c'
TABLE
says "the following errors must be manually repaired:" zpool create -n -f x special "$T/a"
ok zpool create -n -f x raidz2 "$T/a" "$T/b" "$T/c" special mirror "$T/e" "$T/f"

there=
while IFS='|' read -r old words wanted; do
    if [ "$old" != "$there" ]; then
        [ -z "$there" ] || ok zpool destroy t
        ok zpool create -f -m none t $(paths $old)
        there=$old
    fi
    case $words in
        --*) set -- "${words%% *}" t $(paths ${words#* }) ;;
        *) set -- t $(paths $words) ;;
    esac
    is "$(said "$(zpool add -n "$@" 2>&1 </dev/null)")" "$wanted" "add $words to $old"
done <<'TABLE'
raidz2 m n o p|special mirror e f|~ pool and new vdev with different redundancy, raidz and mirror vdevs, 2 vs. 1 (2-way)
raidz2 m n o p|special mirror e f g|
raidz2 m n o p|special e|~ pool uses raidz and new vdev is file
raidz2 m n o p|mirror e f|~ pool and new vdev with different redundancy, raidz and mirror vdevs, 2 vs. 1 (2-way)
raidz2 m n o p|mirror e f g|
raidz2 m n o p|raidz1 e f g|~ pool uses 2 device parity and new vdev uses 1
raidz2 m n o p|raidz2 e f g h i|~ pool uses 4-way raidz and new vdev uses 5-way raidz
raidz2 m n o p|raidz2 e f g h|
raidz2 m n o p|draid2:2d e f g h|~ pool uses raidz and new vdev is draid
raidz2 m n o p|e|~ pool uses raidz and new vdev is file
raidz2 m n o p|mirror e f g special mirror h i|~ both 3-way and 2-way mirror vdevs are present
raidz2 m n o p|log mirror e big|
raidz2 m n o p|special mirror e f big|mirror contains devices of different sizes
raidz2 m n o p|mirror e f raidz1 g h|~ pool uses 2 device parity and new vdev uses 1
raidz2 m n o p|--allow-replication-mismatch special mirror e f|
raidz2 m n o p|--allow-in-use special mirror e f|the following errors must be manually repaired:; ~ pool and new vdev with different redundancy, raidz and mirror vdevs, 2 vs. 1 (2-way)
mirror m n|special mirror e f|
mirror m n|special mirror e f g|~ pool uses 2-way mirror and new vdev uses 3-way mirror
mirror m n|special e|~ pool uses mirror and new vdev is file
mirror m n|raidz1 e f g|
mirror m n|raidz2 e f g h|~ pool and new vdev with different redundancy, raidz and mirror vdevs, 2 vs. 1 (2-way)
mirror m n|draid1:2d e f g|
mirror m n|draid2:1d e f g|~ pool and new vdev with different redundancy, draid and mirror vdevs, 2 vs. 1 (2-way)
mirror m n|e|~ pool uses mirror and new vdev is file
mirror m n o|raidz1 e f g|~ pool and new vdev with different redundancy, raidz and mirror vdevs, 1 vs. 2 (3-way)
mirror m n o|raidz2 e f g h|
mirror m n o|mirror e f|~ pool uses 3-way mirror and new vdev uses 2-way mirror
mirror m n special o|mirror g h i|
mirror m n special o|g|
mirror m n raidz1 o p q|mirror g h i|~ pool and new vdev with different redundancy, raidz and mirror vdevs, 1 vs. 2 (3-way)
mirror m n raidz1 o p q|raidz1 g h i j|~ pool uses 3-way raidz and new vdev uses 4-way raidz
mirror m n raidz1 o p q|raidz2 g h i j|~ pool uses 1 device parity and new vdev uses 2
mirror m n raidz1 o p q|draid1:1d g h i j|~ pool uses raidz and new vdev is draid
raidz1 m n o mirror p q|mirror g h i|~ pool uses 2-way mirror and new vdev uses 3-way mirror
raidz1 m n o mirror p q|raidz2 g h i j|~ pool and new vdev with different redundancy, raidz and mirror vdevs, 2 vs. 1 (2-way)
m|log mirror g h|
m|mirror g h|~ pool uses file and new vdev is mirror
m|g mirror h i|~ both file and mirror vdevs are present
raidz1 m n o|special mirror g h|
raidz1 m n o|special mirror g h i|~ pool and new vdev with different redundancy, raidz and mirror vdevs, 1 vs. 2 (3-way)
raidz1 m n o|raidz1 g h i j|~ pool uses 3-way raidz and new vdev uses 4-way raidz
raidz1 m n o|raidz2 g h i j|~ pool uses 1 device parity and new vdev uses 2
raidz1 m n o raidz2 p q r s|raidz3 g h i j|
draid1 m n o|raidz1 g h i|~ pool uses draid and new vdev is raidz
draid1 m n o|draid2:1d g h i|~ pool uses 1 device parity and new vdev uses 2
draid1 m n o|mirror g h|
draid1 m n o|mirror g h i|~ pool and new vdev with different redundancy, draid and mirror vdevs, 1 vs. 2 (3-way)
draid1 m n o|draid1:1d g h i j|~ pool uses 3-way draid and new vdev uses 4-way draid
mirror m n|mirror e f g mirror h i|~ both 3-way and 2-way mirror vdevs are present
mirror m n|mirror e f g mirror h i j|~ pool uses 2-way mirror and new vdev uses 3-way mirror
mirror m n|mirror e big|mirror contains devices of different sizes
mirror m n|mirror e big g|mirror contains devices of different sizes
mirror m n|log mirror e big|
TABLE
ok zpool destroy t

# What only the real command found out before.
ok zpool create -m none -o feature@allocation_classes=disabled t mirror "$T/a" "$T/b" spare "$T/s" cache "$T/r"
ok zpool create -m none other "$T/c"
ok zpool create -m none away "$T/d"
ok zpool export away
refused() { # text, words
    local text=$1
    shift
    says "$text" zpool add -n "$@"
    says "$text" zpool add "$@"
}
for how in "" -f; do
    refused "cannot add to 't': device is less than the minimum size (64M)" $how t log "$T/tiny"
    refused "cannot add to 't': device is less than the minimum size (64M)" $how t spare "$T/tiny"
    refused "cannot add to 't': one or more vdevs refer to the same device" $how t mirror "$T/e" "$T/e"
    refused "cannot resolve path '$T/none'" $how t mirror "$T/e" "$T/none"
    refused "$T/s is reserved as a hot spare for pool t" $how t mirror "$T/e" "$T/s"
    refused "$T/c is part of active pool 'other'" $how t mirror "$T/e" "$T/c"
    refused "the feature org.zfsonlinux:allocation_classes, which the vdev needs, is not enabled" $how t special mirror "$T/e" "$T/f"
done
refused "mismatched replication level: pool uses mirror and new vdev is file" t "$T/e"
refused "mirror contains devices of different sizes" t mirror "$T/e" "$T/big"
refused "adding devices with different physical sector sizes is not allowed" -o ashift=13 t mirror "$T/e" "$T/f"
ok zpool add -n -f -o ashift=13 t mirror "$T/e" "$T/f"
refused "$T/d is part of exported pool 'away'" t mirror "$T/e" "$T/d"
ok zpool add -n -f t mirror "$T/e" "$T/d"
says "less than the minimum size (64M)" zpool create -n x "$T/e" "$T/tiny"
says "$T/d is part of exported pool 'away'" zpool create -n x mirror "$T/d" "$T/e" raidz2 "$T/f" "$T/g" "$T/h"
ok zpool create -n -f x "$T/d"
says "is part of active pool 'other'" zpool create -n -f x "$T/c"
# The pool's own spare replaces a device only as a spare. For that no -f is needed.
says "cannot open 'nosuch'" zpool replace nosuch "$T/a" "$T/s"
for how in "" -f; do
    says "$T/s is reserved as a hot spare for pool t" zpool attach $how t "$T/a" "$T/s"
done
ok zpool replace -w t "$T/a" "$T/s"
says "spare-0" zpool status t
is "$(zpool list -Hpo size t)" $((5 << 24)) "nothing was added by what was refused"
