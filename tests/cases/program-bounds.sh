#!/usr/bin/env bash
# Channel programs that run for ever where Lua counts no instructions. These places are finalizers, C functions of its library, a chain of
# '__call', the garbage collector and the compiler. Such a program had the pool for itself, and no signal ended it. Each is stopped at its
# time limit, changes nothing, and writers continue.
. "$(dirname "$0")/lib.sh"

disk p.img
zpool create -O mountpoint=none p p.img
# program NAME RIGHT TEXT [OPTIONS]: must end within a while, with status 1, and say what is RIGHT
program() {
    local began=$SECONDS code=0
    printf 'zfs.sync.snapshot("p@%s")\n%s\n' "$1" "$3" >"$1.lua"
    timeout --kill-after=1 30 zfs program ${4:-} p "$1.lua" >"$1.out" 2>&1 </dev/null || code=$?
    is "$code" 1 "status of $1 after $((SECONDS - began)) s"
    grep -qF -e "$2" "$1.out" || differs "$1 does not say '$2': $(head -c 300 "$1.out")"
}
out='timed out'
program gc finalizers 'setmetatable({}, {__gc = function() while true do end end})'
program collect "collectgarbage" 'collectgarbage()'
program gcclose finalizers 'KEEP = setmetatable({}, {__gc = function() while true do end end})'
program close "unexpected symbol near '<'" 'local x <close> = setmetatable({}, {})'
few='-t 300000'
program find "$out" 'string.find(string.rep("a", 5000), ".-.-.-.-.-.-b")' "$few"
program match "$out" 'string.match(string.rep("a", 30000), "(.*)(.*)(.*)%3%2%1b")' "$few"
program gsub "$out" 'string.gsub(string.rep("a", 5000), ".-.-.-.-b", "x")' "$few"
program gmatch "$out" 'for a in string.gmatch(string.rep("a", 5000), ".-.-.-.-b") do end' "$few"
program plain "$out" 'string.find(string.rep("a", 2000000), string.rep("a", 1000000) .. "b", 1, true)' "$few"
program insert "$out" 'table.insert(setmetatable({}, {__len = function() return 2^62 end}), 1, 1)' "$few"
program remove "$out" 'table.remove(setmetatable({}, {__len = function() return 2^62 end}), 1)' "$few"
program sort "$out" 'table.sort(setmetatable({}, {__len = function() return 2^31 - 2 end}), rawequal)' "$few"
program concat "$out" 'table.concat(setmetatable({}, {__index = function() return "" end}), "", 1, 2^62)' "$few"
program tostring "$out" 'tostring(setmetatable({}, {__tostring = function() while true do end end}))' "$few"
program resume "$out" 'local function f() while true do coroutine.resume(coroutine.create(f)) end end f()' "$few"
program large 'Memory limit' 'local t = {1} for i = 1, 15 do local n = {} for j = 1, 100 do n[j] = t end t = n end return t'
head -c 2000000 /dev/zero | tr '\0' ' ' >long
program text 'more than 1048576 bytes' "$(cat long)"
printf 'return #string.rep("", 2^62)' >rep.lua
says 'return: 0' timeout 10 zfs program p rep.lua
# These two are ended by the clock alone: no instruction of theirs comes to an end.
program chain "$out" 'local t = setmetatable({}, {}) getmetatable(t).__call = t t()'
program index "$out" 'local t = {} for i = 1, 1900 do t = setmetatable({}, {__index = t}) end while true do local x = t.a end'
is "$(zfs list -H -t snapshot -o name -r p | sort | tr '\n' ' ')" 'p@collect p@gc p@gcclose ' 'what errors of their own leave'
ok timeout 10 zfs create p/after
ok zpool export p

# The library means what it meant.
zpool import -d . p
cat >library.lua <<'LUA'
local t = {5, 3, 9, 1}
table.sort(t)
table.insert(t, 2, 'x')
local out = {table.concat(t, ','), table.remove(t, 2), table.remove(t), #t}
local words = {'b', 'a', 'c'}
table.sort(words, function(a, b) return a > b end)
out[#out + 1] = table.concat(words)
out[#out + 1] = (string.gsub('hello world', 'o', '0'))
out[#out + 1] = (string.gsub('abc', '%w', '%0%0'))
out[#out + 1] = (string.gsub('$x $y', '%$(%w+)', {x = 1}))
out[#out + 1] = select(2, string.gsub('abc', '', '-'))
for k, v in string.gmatch('a=1, b=2', '(%w+)=(%w+)') do out[#out + 1] = k .. v end
out[#out + 1] = ('x'):rep(3, '-') .. table.unpack({'p', 'q'})
out[#out + 1] = string.find('a.b', '.', 1, true) .. (string.match('key = v', '^(%w+)'))
return table.concat(out, ' ')
LUA
says "return: '1,x,3,5,9 x 9 3 cba hell0 w0rld aabbcc 1 \$y 4 a1 b2 x-x-xp 2key'" zfs program p library.lua
printf 'table.concat({1, {}})' >bad.lua
says '[string "channel program"]:1: invalid value (table) at index 2 in table for '"'concat'" zfs program p bad.lua
printf 'string.rep()' >bad.lua
says "[string \"channel program\"]:1: bad argument #1 to 'rep' (string expected, got no value)" zfs program p bad.lua
