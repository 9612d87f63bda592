#!/usr/bin/env bash
# `-o noatime` had no effect. Files that were cached by the kernel, or empty, kept their access time however often they were read.
. "$(dirname "$0")/lib.sh"

disk d 128M
ok zpool create -m none p "$T/d"
mkdir m
year() { stat -c %x "$1" | cut -c1-4; }
ok zuse mount p m
cp /bin/true m/t
echo x >m/f
mkdir m/d
ok zuse umount p
for options in atime noatime; do
    wanted=$(date +%Y)
    [ $options = atime ] || wanted=2001
    ok zuse mount -o $options p m
    touch -d 2001-01-01 m/t m/f m/d
    m/t
    cat m/f >/dev/null
    ls m/d
    for name in t f d; do is "$(year m/$name)" "$wanted" "-o $options, $name"; done
    ok zuse umount p
done
ok zfs set atime=off p
ok zuse mount p m
touch -d 2001-01-01 m/f
cat m/f >/dev/null
is "$(year m/f)" 2001 "atime=off"
ok zuse umount p

# Without relatime each reading counts, cached or not; O_NOATIME and looking do not.
ok zfs set atime=on relatime=off p
ok zuse mount p m
: >m/empty
for name in f empty; do
    before=$(stat -c %x m/$name)
    for _ in 1 2; do
        sleep 0.05
        cat m/$name >/dev/null
        after=$(stat -c %x m/$name)
        [ "$before" != "$after" ] || differs "the access time of $name stays $after"
        before=$after
    done
    sleep 0.05
    dd if=m/$name iflag=noatime status=none >/dev/null
    stat m/$name >/dev/null
    is "$(stat -c %x m/$name)" "$before" "the access time of $name after O_NOATIME"
done
