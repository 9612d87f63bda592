# Forged names in a stream (`..`, `.`, with a slash, from the root, one name twice) wrote files outside of the target directory. They are
# left out and reported. Nothing outside is changed, and the other files are extracted.
. "$(dirname "$0")/lib.sh"
mkdir in && cd in
cp "$CASES/../../testdata/cases/forged-names.zs" s
mkdir behind
echo precious > evil
ok zuse stream verify s
code=0; zuse stream extract -C out s 2> err || code=$?
is $code 1 "status of extract"
grep -q "names that no file may have" err || differs "nothing was said of the names: $(cat err)"
is "$(cat evil)" precious "the file outside"
[ -e /tmp/zuse-evil-file ] && differs "a file was written by its absolute path" && rm -f /tmp/zuse-evil-file
is "$(cat out/good)" good "the file with a good name"
[ -e out/inner/good2 ] || differs "the directory beside the forged names"
is "$(ls behind)" "" "files behind the link that the stream brought"
for what in "ls -R" manifest; do
    fails 1 zuse stream $what s
    silent "../evil" zuse stream $what s
    says "good" zuse stream $what s
done
mkdir mnt
if [ -e /dev/fuse ]; then
    ok zuse stream mount s mnt
    got=$(ls mnt 2> err | tr '\n' ' ')
    grep -q good <<< "$got" || differs "the listing through a mount: $got"
    grep -q "Input/output error" err || differs "a mount said nothing of the names"
    ok zuse umount mnt
fi
true
