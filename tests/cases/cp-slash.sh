# cp FILE POOL:/dir/ without such a directory made a file "dir"; cp -a DIR/. left the attributes of the dataset's root.
. "$(dirname "$0")/lib.sh"
ok zuse zpool create w "$T/p.img" --size 128M
echo hi > f
fails 1 zuse cp f w:/dir/
silent dir zuse ls w:/
mkdir s; chmod 2750 s; setfattr -n user.k -v v s; touch -d 2002-02-02 s
ok zuse cp -a s/. w:/
says '"mode": "0o42750"' zuse manifest w
says '"user.k": "76"' zuse manifest w
says "\"mtime_ns\": $(stat -c %Y s)000000000" zuse manifest w
# Checksums are there without being asked for.
ok zuse cp f w:/f
says "\"sha256\": \"$(sha256sum < f | cut -d' ' -f1)\"" zuse manifest w
silent sha256 zuse manifest --sha256=none w
