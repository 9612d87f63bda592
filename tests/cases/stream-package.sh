# A package stream (send -R) of several datasets: ls, extract, manifest showed one of them. Now all are one tree, and --dataset or
# FILE@/CHILD chooses one. What the stream brings leads nowhere outside of the directory that it is extracted to.
. "$(dirname "$0")/lib.sh"
disk r.img 128M
ok zpool create -O mountpoint=none r "$T/r.img"
for d in p p/c1 p/c1/d p/c2; do
    ok zfs create r/$d
    echo $d >t
    ok zuse cp t r/$d:/f-in-$(basename $d)
done
# A dataset covers the directory in its place.
mkdir -m 700 c1
ok zuse cp -r c1 r/p:/
ok zfs create -V 1M r/p/v
head -c 1M /dev/urandom >v
ok zuse cp v r/p/v:
ok zfs snapshot -r r/p@1
echo later >t
ok zuse cp t r/p/c1:/later
ok zfs snapshot -r r/p@2
zfs send -R r/p@1 >s 2>said
zfs send -p r/p@1 >top

is "$(zuse stream ls s)" 'r/p@1:/:
c1
f-in-p

r/p/c1@1:/:
f-in-c1

r/p/c1/d@1:/:
f-in-d

r/p/c2@1:/:
f-in-c2

r/p/v@1:/ a volume of 1048576 bytes' "ls of all"
is "$(zuse stream ls top)" 'c1
f-in-p' "ls of one"
is "$(zuse stream ls --dataset c1 s)" f-in-c1 "ls of a chosen one"
is "$(zuse stream ls --dataset r/p/c1/d s)" f-in-d "ls of one that is chosen by its name"
is "$(zuse stream ls s@/c2@1)" f-in-c2 "ls of one that is chosen behind the file"
is "$(zuse stream ls -p /c1/d s)" f-in-d "ls of a path in a dataset below"
is "$(zuse stream cat -p c1/d/f-in-d s)" p/c1/d "cat of a path in a dataset below"
zuse stream cat -p v s | cmp - v || differs "cat of a volume"
fails 1 zuse stream ls --dataset nope s
says "it has: r/p@1 r/p/c1@1" zuse stream ls --dataset nope s
says "cannot list 'r/p/c1@1:/nope'" zuse stream ls -p c1/nope s
is "$(zuse stream manifest s | cut -d, -f1 | LC_ALL=C sort | uniq -c | tr '\n' ' ' | tr -s ' ')" \
    ' 2 {"dataset": "r/p/c1/d@1" 2 {"dataset": "r/p/c1@1" 2 {"dataset": "r/p/c2@1" 1 {"dataset": "r/p/v@1" 3 {"dataset": "r/p@1" ' \
    "the manifest's datasets"
is "$(zuse stream manifest --dataset c2 s | grep -c dataset)" 0 "a manifest of one names its dataset"

tree() { (cd "$1" && find . | sort | tr '\n' ' '); }
all='. ./c1 ./c1/d ./c1/d/f-in-d ./c1/f-in-c1 ./c2 ./c2/f-in-c2 ./f-in-p ./v '
ok zuse stream extract s -C out
is "$(tree out)" "$all" "what was extracted"
cmp out/v v || differs "the volume"
is "$(stat -c %a out/c1)" 755 "the mode of a dataset's root"
mkdir there
ok zuse stream extract s -C there
is "$(tree there)" "$all" "what was extracted to a directory that was there"
ok zuse stream extract s -p c1 -C part
is "$(tree part)" '. ./c1 ./c1/d ./c1/d/f-in-d ./c1/f-in-c1 ' "a part"
ok zuse stream extract s --dataset c1 -C one
is "$(tree one)" '. ./f-in-c1 ' "one that was chosen"
ok zuse stream extract top -p f-in-p -C new
is "$(cat new/f-in-p)" p "-C is a directory"

# A link of the stream in the place of a dataset below.
mkdir outside
ln -s "$T/outside" c2
ok zfs create r/q
ok zuse cp c2 r/q:/c2
ok zfs create r/q/c2
ok zuse cp v r/q/c2:/evil
ok zfs snapshot -r r/q@1
zfs send -R r/q@1 >q
fails 1 zuse stream extract q -C outq
is "$(ls outside)" '' "what came outside"

# Two packages; what changed.
zfs send -R -I @1 r/p@2 >more
is "$(zuse stream ls --dataset c1 s more)" 'f-in-c1
later' "ls of the newer"
is "$(zuse stream diff -H s more)" 'M	/c1/
+	/c1/later' "what changed"

if [ -e /dev/fuse ]; then
    mkdir mnt
    ok zuse stream mount s mnt
    is "$(cd mnt && find . -type f | sort | tr '\n' ' ')" './c1/d/f-in-d ./c1/f-in-c1 ./c2/f-in-c2 ./f-in-p ' "the mounted package"
    ok zuse umount mnt
    ok zuse stream mount --dataset c1 s mnt
    is "$(ls mnt | tr '\n' ' ')" 'f-in-c1 ' "one that is mounted alone"
    ok zuse umount mnt
fi
ok zpool export r
