-- The world of a channel program: what it finds in its globals. Runs before the program, walled off from it: `host` holds the
-- functions of the pool, which answer (nil, message) or (true, results).
local host, traceback, library = ...
local error, type, select, pairs, ipairs, next = error, type, select, pairs, ipairs, next
local setmetatable, getmetatable, tostring, tonumber = setmetatable, getmetatable, tostring, tonumber
local rawget, pcall, xpcall, format = rawget, pcall, xpcall, string.format
local gsub, sub = string.gsub, string.sub

-- Whole-number arithmetic (dialect.rs).
local function whole(v)
  if type(v) == "number" then return v end
  if type(v) == "string" then return host.integer(v) end
end
local function operands(a, b, number)
  local x, y = whole(a), whole(b)
  if x == nil or y == nil then
    local bad, name = a, number and host.operand(number, x ~= nil)
    if x ~= nil then bad = b end
    local kind = name and name .. " (a " .. type(bad) .. " value)" or "a " .. type(bad) .. " value"
    error("attempt to perform arithmetic on " .. kind, 3)
  end
  return x, y
end
-- What a table says that an operator is on it: the left one's word counts first.
local function handler(a, b, event)
  for i = 1, 2 do
    local meta = type(a) == "table" and host.metatable(a)
    local found = meta and rawget(meta, event)
    if found then return found end
    a = b
  end
end
-- The first of two operators gives what the second asks: what is left of it, and how.
local function waiting(second)
  return setmetatable({}, {__idiv = function(a) return setmetatable({a}, second) end, __metatable = false})
end
-- Each place of an operator has one of its own. The handlers have the names that a traceback shows.
local operators = {}
function operators.div(number) return waiting {__idiv = function(left, b)
  local a = left[1]
  local __div = handler(a, b, "__div")
  if __div then return (__div(a, b)) end
  local x, y = operands(a, b, number)
  if y == 0 then error("attempt to divide by zero", 2) end
  if y == -1 then return -x end
  local q = x // y
  if q < 0 and q * y ~= x then q = q + 1 end
  return q
end} end
function operators.mod(number) return waiting {__idiv = function(left, b)
  local a = left[1]
  local __mod = handler(a, b, "__mod")
  if __mod then return (__mod(a, b)) end
  local x, y = operands(a, b, number)
  if y == 0 then error("attempt to perform 'n%0'", 2) end
  if y == -1 then return 0 end
  local q = x // y
  if q < 0 and q * y ~= x then q = q + 1 end
  return x - q * y
end} end
-- What stands before a `^`.
function operators.pow(number)
local base = {__pow = function(left, b)
  local a = left[1]
  local __pow = handler(a, b, "__pow")
  if __pow then return (__pow(a, b)) end
  local x, y = operands(a, b, number)
  if y < 0 then return 0 end
  local r = 1
  while y > 0 do
    if y & 1 == 1 then r = r * x end
    x, y = x * x, y >> 1
  end
  return r
end}
return function(a) return setmetatable({a}, base) end
end
-- Around what calls a function of ours last: so that its caller is still there when it fails.
local function all(...) return ... end

-- What is left of the standard libraries.
local world = {}
for _, name in ipairs {"assert", "error", "getmetatable", "ipairs", "next", "pairs", "rawequal", "rawget",
    "rawlen", "rawset", "select", "tostring", "type"} do
  world[name] = _G[name]
end
world._VERSION = "Lua 5.2"
function world.assert(v, message, ...)
  if v then return v, message, ... end
  if message == nil then error("assertion failed!", 2) end
  if type(message) ~= "string" and type(message) ~= "number" then
    error("bad argument #2 to 'assert' (string expected, got " .. type(message) .. ")", 2)
  end
  error(tostring(message), 2)
end
-- The place stands before a number, too.
function world.error(v, level)
  local outer = level == nil and 2 or type(level) == "number" and level > 0 and level + 1 or level
  error(type(v) == "number" and outer ~= 0 and tostring(v) or v, outer)
end
function world.tonumber(v, base)
  if base ~= nil then
    if type(v) == "number" then v = tostring(v) end
    if type(v) ~= "string" then
      error("bad argument #1 to 'tonumber' (string expected, got " .. type(v) .. ")", 2)
    end
    local n = type(base) == "number" and base or host.integer(tostring(base))
    if n and (n < 2 or n > 36) then error("bad argument #2 to 'tonumber' (base out of range)", 2) end
    return (tonumber(v, base))
  end
  if type(v) == "number" then return v end
  if type(v) == "string" then return host.integer(v) end
  if v == nil then error("bad argument #1 to 'tonumber' (value expected)", 2) end
end
world.coroutine = {}
for _, name in ipairs {"create", "running", "status", "wrap", "yield"} do
  world.coroutine[name] = coroutine[name]
end
world.table = {}
world.table.pack = table.pack
local strings = {}
for _, name in ipairs {"byte", "char", "len", "lower", "reverse", "sub", "upper"} do
  strings[name] = string[name]
end
function strings.format(pattern, ...)
  local fixed = gsub(pattern, "%%([-+ #0-9.]*)(.?)", function(flags, kind)
    if kind == "%" or kind == "d" or kind == "i" or kind == "o" or kind == "x" or kind == "X" or kind == "c"
        or kind == "s" or kind == "q" then
      return nil
    end
    if kind == "u" then return "%" .. flags .. "d" end
    error("invalid option '%" .. kind .. "' to 'format'", 4)
  end)
  local ok, made = pcall(format, fixed, ...)
  if ok then return made end
  error(gsub(made, "string%.", "", 1), made == "not enough memory" and 0 or 2)
end
world.string = strings
library(host, world)
local text = getmetatable("")
text.__index = strings
for event, work in pairs {
  __add = function(x, y) return x + y end,
  __sub = function(x, y) return x - y end,
  __mul = function(x, y) return x * y end,
} do
  text[event] = function(a, b)
    local own = handler(a, b, event)
    if own then return (own(a, b)) end
    return work(operands(a, b))
  end
end
function text.__unm(a) return -operands(a, 0) end
world._G = world
for name, number in pairs(host.errno) do world[name] = number end
local made = {__zall = all}
setmetatable(world, {__index = function(_, k)
  local found = made[k]
  if found ~= nil or type(k) ~= "string" or sub(k, 1, 3) ~= "__z" then return found end
  local operator, number = operators[sub(k, 4, 6)], tonumber(sub(k, 7))
  if operator and number then
    made[k] = operator(number)
    return made[k]
  end
end, __metatable = false})

-- Passes results on, raises what failed in the name of the program.
local function answer(ok, ...)
  if ok then return ... end
  error((...), 3)
end
-- Arguments: by position, or one table of positions and keywords.
local function define(place, name, positions, keywords, work)
  local parts = {}
  for _, p in ipairs(positions) do parts[#parts + 1] = "<" .. p .. "(string)>" end
  local names = {}
  for k, t in pairs(keywords) do names[#names + 1] = k .. "=(" .. t .. ")" end
  for _, k in ipairs(names) do parts[#parts + 1] = k end
  local signature = name .. "{" .. table.concat(parts, ", ") .. "}"
  place[name] = function(...)
    local args, given, count = {}, {}, select("#", ...)
    local first = ...
    if count == 1 and type(first) == "table" then
      count = 0
      for k, v in pairs(first) do
        if type(k) == "number" then
          args[k] = v
          if k > count then count = k end
        elseif keywords[k] == nil then
          error("invalid kwarg '" .. tostring(k) .. "': " .. signature, 2)
        elseif type(v) ~= keywords[k] then
          error("kwarg '" .. k .. "' wrong type (is '" .. type(v) .. "', expected '" .. keywords[k] .. "'): " .. signature, 2)
        else
          given[k] = v
        end
      end
    else
      args = {...}
    end
    if count < #positions then error("too few arguments: " .. signature, 2) end
    if count > #positions then error("too many positional arguments: " .. signature, 2) end
    for i = 1, count do
      local v = args[i]
      if type(v) == "number" then
        args[i] = tostring(v)
        v = nil
        error("arg " .. i .. " wrong type (is 'number', expected 'string'): " .. signature, 2)
      elseif type(v) ~= "string" then
        error("arg " .. i .. " wrong type (is '" .. type(v) .. "', expected 'string'): " .. signature, 2)
      end
    end
    return all(answer(work(args, given)))
  end
end

local zfs = {list = {}, sync = {}, check = {}}
define(zfs, "exists", {"dataset"}, {}, function(a)
  return host.exists(a[1])
end)
define(zfs, "get_prop", {"dataset", "property"}, {}, function(a)
  return host.get_prop(a[1], a[2])
end)
define(zfs, "debug", {"debug string"}, {}, function(a)
  return host.debug(a[1])
end)
local function iterator(name, check)
  define(zfs.list, name, {name == "clones" and "snapshot" or name == "holds" and "snapshot" or "dataset"}, {}, function(a)
    local ok, rows = host.list(name, a[1])
    if not ok then return ok, rows end
    local at = 0
    return true, function()
      while true do
        at = at + 1
        local row = rows[at]
        if row == nil then return nil end
        if not check or host.there(row[1]) then
          if name == "holds" then return row[1], row[2] end
          return row[1], row[2], row[3]
        end
      end
    end
  end)
end
iterator("children", true)
iterator("snapshots", true)
iterator("clones", true)
iterator("bookmarks", false)
iterator("holds", false)
iterator("user_properties", false)
zfs.list.properties = zfs.list.user_properties
define(zfs.list, "system_properties", {"dataset"}, {}, function(a)
  return host.list("system_properties", a[1])
end)

local operations = {
  {"destroy", {"filesystem | snapshot"}, {defer = "boolean"}},
  {"snapshot", {"filesystem@snapname | volume@snapname"}, {}},
  {"clone", {"snapshot", "newdataset"}, {}},
  {"promote", {"clone"}, {}},
  {"rollback", {"filesystem"}, {}},
  {"rename_snapshot", {"filesystem | volume", "oldsnapname", "newsnapname"}, {}},
  {"inherit", {"dataset", "property"}, {}},
  {"bookmark", {"snapshot | bookmark", "bookmark"}, {}},
  {"set_prop", {"dataset", "property", "value"}, {}},
}
for _, op in ipairs(operations) do
  local name = op[1]
  define(zfs.sync, name, op[2], op[3], function(a, k)
    return host.operate(name, true, k.defer or false, a[1], a[2], a[3])
  end)
  define(zfs.check, name, op[2], op[3], function(a, k)
    return host.operate(name, false, k.defer or false, a[1], a[2], a[3])
  end)
end
world.zfs = zfs

-- Runs the program: its results behind true, or false, the error and the traceback.
local function handler(e)
  return {e, traceback()}
end
return world, function(program, argument)
  local function pack(ok, ...)
    if ok then return true, select("#", ...), ... end
    local failure = ...
    if type(failure) ~= "table" then return false, failure, "" end
    return false, failure[1], failure[2]
  end
  return pack(xpcall(program, handler, argument))
end
