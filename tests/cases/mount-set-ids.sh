#!/usr/bin/env bash
# Set-id bits survived a write by an unprivileged user, and exec honoured them. The server dropped them, but did not tell the kernel,
# which keeps attributes without a time limit.
. "$(dirname "$0")/lib.sh"

disk d 128M
ok zpool create -m none p "$T/d"
mkdir m
user="setpriv --reuid 65534 --regid 65534 --clear-groups"
change() { python3 -c "import os, mmap
p = '$T/m/f'
$1"; }
export -f change
export T

# Creates a file with that mode, lets another user change it, and compares its mode with the last argument.
after() {
    local who=$1 mode=$2 wanted=$3
    rm -f m/f
    head -c 65536 /dev/zero >m/f
    chmod "$mode" m/f
    $who "${@:4}" >/dev/null 2>&1 || differs "$who $*"
    is "$(stat -c %a m/f)" "$wanted" "-o $options: ${*:4}, by ${who:-root}"
}
all() {
    after "$1" "$2" "$3" dd if=/dev/zero of="$T/m/f" bs=4096 count=1 conv=notrunc
    after "$1" "$2" "$3" dd if=/dev/zero of="$T/m/f" bs=4096 count=1 conv=notrunc oflag=direct
    after "$1" "$2" "$3" truncate -s 100 "$T/m/f"
    after "$1" "$2" "$3" fallocate -o 0 -l 100000 "$T/m/f"
    after "$1" "$2" "$3" fallocate -p -o 0 -l 4096 "$T/m/f"
    after "$1" "$2" "$3" bash -c "change \"a = os.open('/etc/passwd', 0); b = os.open(p, 1); os.sendfile(b, a, 0, 100)\""
    after "$1" "$2" "$3" bash -c "change \"a = os.open(p, 0); b = os.open(p, 1); os.copy_file_range(a, b, 1000, 0, 5000)\""
    after "$1" "$2" "$3" bash -c ": > $T/m/f"
}
for options in suid suid,btime suid,writeback; do
    ok zuse mount -o "$options" p m
    all "$user" 6777 777
    # A group that may not execute the file: the bit means nothing to exec, and falls all the same, as on other file systems.
    after "$user" 6666 666 dd if=/dev/zero of="$T/m/f" bs=4096 count=1 conv=notrunc
    # Who may set such bits keeps them.
    all "" 6777 6777
    # At once, for exec too.
    rm -f m/f
    cp /usr/bin/id m/f
    chmod 6777 m/f
    $user dd if=/usr/bin/id of=m/f bs=4096 count=1 conv=notrunc status=none
    silent 'euid=0' $user m/f
    silent 'egid=0' $user m/f
    # A change of owner takes them from files, not from directories.
    mkdir -p m/dir
    chmod 2775 m/dir
    chown 1:1 m/dir
    is "$(stat -c %a m/dir)" 2775 "a directory with another owner"
    chmod 6755 m/f
    chown 1:1 m/f
    is "$(stat -c %a m/f)" 755 "a file with another owner"
    ok zuse umount p
done
