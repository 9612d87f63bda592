# Copying files and volumes to the host follows no existing link, and replaces only what it has created itself. Users other than root get
# no set-id bits. No directory is open to other users before its content is complete.
. "$(dirname "$0")/lib.sh"
ok zuse zpool create w "$T/p.img" --size 128M
mkdir -p src/sub outside
echo new > src/sub/f; echo new > src/top; ln src/top src/twin
cp /bin/true src/set; chmod 6755 src/set; chmod 2751 src/sub
mknod src/null c 1 3; mkfifo src/pipe; ln -s /etc/passwd src/link
chown 1234:1234 src/top
ok zuse cp -r src w:/
ok zuse zfs snapshot w@1
zuse zfs send w@1 > s

# A link of a former run in the place of a directory or file.
mkdir out out/src; ln -s "$T/outside" out/src/sub; ln -s "$T/outside/top" out/src/top
fails 1 zuse stream extract -C out s
is "$(ls outside)" "" "what came out behind a link"
is "$(readlink out/src/sub)" "$T/outside" "the link that was there"
# A file that is there stays; -f replaces it, and the links, but follows none.
rm -r out; mkdir -p out/src; echo precious > out/src/top; mkdir out/src/set
fails 1 zuse stream extract -C out s
is "$(cat out/src/top)" precious "the file that was there"
ln -sf "$T/outside/top" out/src/top
fails 1 zuse stream extract -f -C out s
is "$(cat out/src/top)$(stat -c %F out/src/set)$(ls outside)" "newdirectory" "after -f"
# By name, as cp(1) does: a file is replaced, a link and a device are not.
echo old > named; ln -s named way
ok zuse cp w:/src/top named
is "$(cat named)" new "the file that was named"
fails 1 zuse cp w:/src/sub/f way
mknod device c 1 3
fails 1 zuse cp w:/src/sub/f device
[ -c device ] || differs "a device was replaced"
# A volume comes out as a file does.
ok zuse zfs create -V 1M w/v
{ echo image; head -c 1M /dev/zero; } | head -c 1M > image
ok zuse cp image w/v:
fails 1 zuse cp w/v: way
is "$(head -c 3 named | tr -d '\0')" new "what a link leads to that has the volume's name"
ok zuse cp -f w/v: way
[ -f way ] && [ ! -L way ] && cmp -s way image || differs "the link that -f replaces"
is "$(head -c 3 named | tr -d '\0')" new "what the replaced link led to"
ok zuse cp w/v: named
cmp -s named image || differs "the file that was named"
mkdir -p into; ok zuse cp w/v: into
cmp -s into/v image || differs "a volume in a directory"
fails 1 zuse cp w/v: device

# As root all is kept.
ok zuse stream extract -C root s
is "$(stat -c %a:%u root/src/set root/src/sub root/src/top | tr '\n' ' ')" "6755:0 2751:0 644:1234 " "modes as root"
is "$(stat -c %i root/src/top)" "$(stat -c %i root/src/twin)" "the hard link"
is "$(stat -c %F root/src/null)" "character special file" "the device"
ok zuse stream extract --no-same-owner --no-special -C plain s
is "$(stat -c %a:%u plain/src/set plain/src/top | tr '\n' ' ')" "755:0 644:0 " "modes without owners"
[ -e plain/src/null ] || [ -e plain/src/pipe ] && differs "special files came out"
# As another user neither set-id bits nor devices; the rest is copied.
mkdir -m 700 theirs
chown 4321:4321 theirs
chmod 755 "$T/.own" "$T/.own/bin"; chmod 644 s
code=0
setpriv --reuid 4321 --regid 4321 --clear-groups env HOME="$T/theirs" XDG_STATE_HOME="$T/theirs/.s" XDG_RUNTIME_DIR= \
    TMPDIR=/tmp "$ZUSE" stream extract --no-special -C theirs/out s > err 2>&1 || code=$?
is $code 0 "status as another user: $(cat err)"
is "$(stat -c %a:%u theirs/out/src/set theirs/out/src/sub | tr '\n' ' ')" "755:4321 751:4321 " "modes as another user"
true
