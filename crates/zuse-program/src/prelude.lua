-- The world of a channel program: what it finds in its globals. Runs before the program, walled off from it: `host` holds the
-- functions of the pool, which answer (nil, message) or (true, results).
local host, traceback, library = ...
local error, type, select, pairs, ipairs, next = error, type, select, pairs, ipairs, next
local setmetatable, getmetatable, tostring, tonumber = setmetatable, getmetatable, tostring, tonumber
local rawget, xpcall, format = rawget, xpcall, string.format
local gsub = string.gsub

-- Whole-number arithmetic (dialect.rs).
local function whole(v)
  if type(v) == "number" then return v end
  if type(v) == "string" then return (tonumber(v, 10)) or host.integer(v) end
end
local function operands(a, b)
  local x, y = whole(a), whole(b)
  if x == nil or y == nil then
    local bad = x == nil and a or b
    error("attempt to perform arithmetic on a " .. type(bad) .. " value", 3)
  end
  return x, y
end
-- What a table says that an operator is on it: the left one's word counts first.
local function handler(a, b, event)
  for i = 1, 2 do
    local meta = type(a) == "table" and getmetatable(a)
    local found = type(meta) == "table" and rawget(meta, event)
    if found then return found end
    a = b
  end
end
local function waiting(event, work)
  local second = {__idiv = function(left, b)
    local own = handler(left[1], b, event)
    if own then return (own(left[1], b)) end
    return work(left[1], b)
  end}
  return setmetatable({}, {__idiv = function(a) return setmetatable({a}, second) end, __metatable = false})
end
local div = waiting("__div", function(a, b)
  local x, y = operands(a, b)
  if y == 0 then error("attempt to divide by zero", 2) end
  if y == -1 then return -x end
  local q = x // y
  if q < 0 and q * y ~= x then q = q + 1 end
  return q
end)
local mod = waiting("__mod", function(a, b)
  local x, y = operands(a, b)
  if y == 0 then error("attempt to perform 'n%0'", 2) end
  if y == -1 then return 0 end
  local q = x // y
  if q < 0 and q * y ~= x then q = q + 1 end
  return x - q * y
end)
local function power(a, b)
  local x, y = operands(a, b)
  if y < 0 then return 0 end
  local r = 1
  while y > 0 do
    if y & 1 == 1 then r = r * x end
    x, y = x * x, y >> 1
  end
  return r
end
local exponent = {__pow = function(a, right) return power(a, right[1]) end}
local pow = setmetatable({}, {__pow = function(_, b) return setmetatable({b}, exponent) end, __metatable = false})

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
  error(message, 0)
end
function world.tonumber(v, base)
  if base ~= nil then return tonumber(v, base) end
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
  return format(fixed, ...)
end
world.string = strings
library(host, world)
getmetatable("").__index = strings
world._G = world
for name, number in pairs(host.errno) do world[name] = number end
setmetatable(world, {__index = function(_, k)
  if k == "__zdiv" then return div elseif k == "__zmod" then return mod elseif k == "__zpow" then return pow end
end, __metatable = false})

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
    return work(args, given)
  end
end

-- Passes results on, raises what failed in the name of the program: it is tail-called, so that is one level up.
local function answer(ok, ...)
  if ok then return ... end
  error((...), 2)
end

local zfs = {list = {}, sync = {}, check = {}}
define(zfs, "exists", {"dataset"}, {}, function(a)
  return answer(host.exists(a[1]))
end)
define(zfs, "get_prop", {"dataset", "property"}, {}, function(a)
  return answer(host.get_prop(a[1], a[2]))
end)
define(zfs, "debug", {"debug string"}, {}, function(a)
  return answer(host.debug(a[1]))
end)
local function iterator(name, check)
  define(zfs.list, name, {name == "clones" and "snapshot" or name == "holds" and "snapshot" or "dataset"}, {}, function(a)
    local ok, rows = host.list(name, a[1])
    if not ok then error(rows, 2) end
    local at = 0
    return function()
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
  return answer(host.list("system_properties", a[1]))
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
    return answer(host.operate(name, true, k.defer or false, a[1], a[2], a[3]))
  end)
  define(zfs.check, name, op[2], op[3], function(a, k)
    return answer(host.operate(name, false, k.defer or false, a[1], a[2], a[3]))
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
