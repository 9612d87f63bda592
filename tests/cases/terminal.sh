# Control characters in names, properties and history of a disk reached the terminal: they moved its cursor and set its title. On a terminal
# they are escaped, as ls does. Pipes, -H and JSON get exact bytes.
. "$(dirname "$0")/lib.sh"
esc=$(printf '\033'); evil="${esc}]0;x$(printf '\007')"
ok zuse zpool create w "$T/p.img" --size 128M
echo hi > "$T/a${evil}b"
printf x > "$T/two
lines"
ok zuse cp "$T/a${evil}b" "$T/two
lines" w:/
ok zuse zfs set "user:note=v${evil}w" w
tty() { script -qec "$*" /dev/null < /dev/null; }
raw() { LC_ALL=C grep -c -F -e "$esc" || true; }
for what in "zuse ls w:/" "zuse ls -l w:/" "zuse zfs get user:note w" "zuse zfs get all w" "zuse zpool history w" \
    "zuse zfs list -o name,user:note" "zuse cat 'w:/no${evil}ne'"; do
    is "$(tty "$what" | raw)" 0 "orders to a terminal by $what"
done
# Neither history nor an error gets lines that are not its own.
ok zuse zfs set "user:lines=v
2020-01-01.00:00:00 zpool create forged" w
for what in "zuse zpool history w" "zuse zpool history -il w" "zdb -h w" "zuse zfs get user:note 'w@a
forged'" "zuse cat 'w:/no
forged'" "zuse cp 'w:/no
forged' out"; do
    is "$(tty "$what" | grep -cE '^(forged|2020)')" 0 "forged lines of $what"
done
tty "zuse zpool history w" | grep -qF 'v\n2020' || differs "the line break in the history as it is spelled"
is "$(zuse zpool history w | grep -c '^2020')" 1 "a pipe is exact"

tty "zuse ls w:/" | grep -qF 'two\nlines' || differs "a line break in a name: $(tty "zuse ls w:/")"
tty "zuse ls w:/" | grep -qF 'a\033]0;x\007b' || differs "the name as it is spelled"
is "$(zuse ls w:/ | raw)" 1 "a pipe is exact"
is "$(zuse zfs get -H -o value user:note w)" "v${evil}w" "-H is exact"
is "$(tty "zuse zfs get -H -o value user:note w" | raw)" 1 "-H is exact at a terminal"
is "$(zuse zfs get -j user:note w | raw)" 0 "JSON"
ok zuse zpool export w
