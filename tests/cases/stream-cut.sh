# Of a truncated or damaged stream, files without their data were extracted as zeros, with status 0. Now each of them is named, and the
# status is 1. Complete files are extracted, and no incomplete file is left unless it was requested.
. "$(dirname "$0")/lib.sh"
ok zuse zpool create w "$T/p.img" --size 128M
head -c 3M /dev/urandom > f
mkdir d && echo small > d/s && cp d/s d/t
for n in 1 2; do ok zuse cp f w:/$n; done
ok zuse cp -r d w:/
ok zuse zfs snapshot w@1
zuse zfs send w@1 > whole
size=$(stat -c %s whole)
ok zuse stream extract -C all whole
for n in 1 2; do cmp -s all/$n f || differs "$n of the whole stream"; done
ok zuse stream verify whole

: > empty
fails 1 zuse stream verify empty
fails 1 zuse stream manifest empty

head -c 3700000 whole > cut
fails 1 zuse stream verify cut
fails 1 zuse stream extract -C ex cut
says "2' is incomplete" zuse stream extract -C ex2 cut
is "$(ls ex | tr '\n' ' ')" "1 " "what was extracted"
cmp -s ex/1 f || differs "the file that is whole"
fails 1 zuse stream extract -k -C kept cut
says "2' is incomplete" zuse stream extract -k -C kept2 cut
is "$(stat -c %s kept/2)" 3145728 "size of the file that is kept in part"
cmp -s -n 100000 kept/2 f || differs "the part that is kept"
for n in 1 2; do
    code=0; zuse stream cat -p $n cut > got 2> err || code=$?
    is $code 1 "status of cat $n"
    [ $n = 1 ] && ! cmp -s got f && differs "cat of the whole file"
    [ $n = 2 ] && { cmp -s -n "$(stat -c %s got)" got f || differs "what cat gave of the other"; }
    [ $n = 2 ] && { grep -q "incomplete" err || differs "cat did not say so: $(cat err)"; }
done
code=0; zuse stream manifest cut > lines 2> err || code=$?
is $code 1 "status of manifest"
grep -q '"path": "1".*"sha256"' lines || differs "the whole file's line"
grep -q '"path": "2","error"' lines || differs "the other's line: $(grep '"2"' lines)"

# A flipped bit is as good as a cut.
cp whole bad
printf '\377\377' | dd of=bad bs=1 seek=3700000 conv=notrunc status=none
fails 1 zuse stream extract -C flipped bad
cmp -s flipped/1 f || differs "the file before the damage"
[ -e flipped/2 ] && differs "half of a file was left"

# Wherever it is cut: what is given is right.
for at in 1000 20000 45000 60000 $((size - 400)) $((size - 312)); do
    head -c $at whole > part
    rm -rf o
    fails 1 zuse stream extract -C o part
    for n in 1 2; do [ ! -e o/$n ] || cmp -s o/$n f || differs "$n of a stream cut at $at"; done
    for n in s t; do [ ! -e o/d/$n ] || cmp -s o/d/$n d/s || differs "d/$n of a stream cut at $at"; done
done

# An incremental one that is cut: what the source had is not given for what should have come.
echo later > d/s && echo new > d/u
head -c 3M /dev/urandom > g
ok zuse cp g w:/2
ok zuse cp -r d w:/
ok zuse zfs snapshot w@2
zuse zfs send -i @1 w@2 > more
for at in 700 4000 100000 2000000 $(($(stat -c %s more) - 312)); do
    head -c $at more > part
    rm -rf o
    fails 1 zuse stream extract -C o whole part
    [ ! -e o/2 ] || cmp -s o/2 g || differs "2 of an incremental stream cut at $at"
    [ ! -e o/d/s ] || cmp -s o/d/s d/s || differs "d/s of an incremental stream cut at $at"
    fails 1 zuse stream diff whole part
done
mkdir mnt
if [ -e /dev/fuse ]; then
    fails 1 zuse stream mount cut mnt
    cmp -s mnt/1 f || differs "the whole file through a mount"
    cat mnt/2 > got 2> err && differs "a mount gave what the stream does not hold"
    ok zuse umount mnt
fi
true
