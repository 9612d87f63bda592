#!/usr/bin/env bash
# sanoid takes snapshots by policy, prunes them, and says as a monitor whether they, the pool and its capacity are in order.
. "$(dirname "$0")/lib.sh"
has pv:pv mbuffer:mbuffer lzop:lzop /usr/share/perl5/Config/IniFiles.pm:libconfig-inifiles-perl
has /usr/share/perl5/Capture/Tiny.pm:libcapture-tiny-perl
debs sanoid=2.1.0-1.1
# It looks for its defaults below /usr/share: laid over it in this namespace.
mount -t overlay consumers -o "lowerdir=$KEPT/deb/usr/share:/usr/share" /usr/share || cannot "cannot lay its files over /usr/share"
mounts_before=$(cut -d ' ' -f 2 /proc/mounts | sort)

pools ztank
for fs in home home/ann home/ben big; do ok zfs create "ztank/$fs"; done
ok zfs create -V 16M ztank/vol
mkdir conf cache run
cat >conf/sanoid.conf <<'END'
[ztank/home]
    use_template = often
    recursive = yes
    process_children_only = yes
[ztank/big]
    use_template = often
    recursive = zfs
[ztank/vol]
    use_template = often
    hourly = 1
[template_often]
    frequently = 0
    hourly = 3
    daily = 2
    weekly = 0
    monthly = 1
    yearly = 0
    autosnap = yes
    autoprune = yes
END
policy() { sanoid --configdir="$T/conf" --cache-dir="$T/cache" --run-dir="$T/run" "$@"; }
snaps() { zfs list -H -t snapshot -o name -r "${1:-ztank}" | sed -E 's/[0-9]{4}-.*[0-9]_/DATE_/' | sort |
    uniq -c | awk '{ print $2 "*" $1 }'; }

runs take policy --take-snapshots --verbose
is "$(snaps ztank/home | tr '\n' ' ')" "$(for k in daily hourly monthly; do for fs in ann ben; do
    echo "ztank/home/$fs@autosnap_DATE_$k*1"; done; done | sort | tr '\n' ' ')" "snapshots of the children only"
is "$(snaps ztank/vol | wc -l)" 3 "snapshots of the volume"
is "$(snaps ztank/big | wc -l)" 3 "snapshots that zfs takes recursively"
runs again policy --take-snapshots --verbose
is "$(zfs list -H -t snapshot -o name | wc -l)" 12 "snapshots after a second run: none is due"
# Old ones by name and creation: the pruning goes by creation, so all have the same age. 3 of 8 stay.
for hour in 01 02 03 04 05 06 07; do ok zfs snapshot "ztank/home/ann@autosnap_2020-01-01_$hour:00:00_hourly"; done
runs early policy --prune-snapshots --verbose --force-update
is "$(snaps ztank/home/ann | grep hourly | tr '\n' ' ')" 'ztank/home/ann@autosnap_DATE_hourly*8 ' "what is younger than the policy stays"

runs health policy --monitor-health
says 'OK ZPOOL ztank : ONLINE' cat health.out
runs capacity policy --monitor-capacity
says 'OK ZPOOL ztank' cat capacity.out
runs monitor policy --monitor-snapshots
says 'OK: all monitored datasets' cat monitor.out

# Three days later all hours are too old: three stay. While they are held none can go, and sanoid says so.
hours=$(zfs list -H -t snapshot -o name ztank/home/ann | grep hourly)
cat >Later.pm <<'END'
package Later;
BEGIN { *CORE::GLOBAL::time = sub { CORE::time() + 3 * 86400 } }
1;
END
for snap in $hours; do ok zfs hold keep "$snap"; done
PERL5OPT="-I$T -MLater" runs held policy --prune-snapshots --verbose --force-update
is "$(grep -c 'being held' held.out)" 5 "snapshots that are not destroyed while they are held"
is "$(snaps ztank/home/ann | grep hourly)" 'ztank/home/ann@autosnap_DATE_hourly*8' "what is held"
# shellcheck disable=SC2086
ok zfs release keep $hours
PERL5OPT="-I$T -MLater" runs late policy --prune-snapshots --verbose --force-update
is "$(snaps ztank/home/ann | tr '\n' ' ')" \
    "ztank/home/ann@autosnap_DATE_daily*1 ztank/home/ann@autosnap_DATE_hourly*3 ztank/home/ann@autosnap_DATE_monthly*1 " "what stays of ann"
is "$(snaps ztank/big | wc -l)" 3 "what there are not too many of"

ok zpool destroy ztank
ended ztank
