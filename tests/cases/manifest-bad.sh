# One file that could not be read ended a manifest and a copy. Now it is a line with an error, and the others follow.
. "$(dirname "$0")/lib.sh"
ok zuse zpool create -O compression=off -O checksum=sha256 w "$T/p.img" --size 128M
mkdir d
for n in 1 2 3; do yes "file $n is here" | head -c 300000 > d/$n; done
ok zuse cp -r d w:/
at=$(grep -obUa -m1 "file 2 is here" p.img | head -1 | cut -d: -f1)
[ -n "$at" ] || differs "the data is not found"
dd if=/dev/zero of=p.img bs=1 seek="$at" count=512 conv=notrunc status=none
code=0; zuse manifest w > lines 2> err || code=$?
is $code 1 "status of manifest"
is "$(grep -c '"sha256"' lines) $(grep -c '"path": "d/2","error"' lines)" "2 1" "lines with sums and with an error"
code=0; zuse cp -r w:/d out 2> err || code=$?
is $code 1 "status of cp"
grep -q "out/2' is incomplete" err || differs "the bad file is not named: $(cat err)"
cmp -s out/1 d/1 && cmp -s out/3 d/3 || differs "the good files"
[ -e out/2 ] && differs "half a file is left"
fails 1 zuse cp -rk w:/d kept
is "$(stat -c %s kept/2)" 300000 "size of the part that is kept"
code=0; zuse cat w:/d/2 w:/d/3 > got 2> err || code=$?
is $code 1 "status of cat"
tail -c 300000 got | cmp -s - d/3 || differs "cat ended with the bad file"
code=0; zuse cat -k w:/d/2 > got 2> err || code=$?
is "$code $(stat -c %s got)" "1 300000" "cat -k"
