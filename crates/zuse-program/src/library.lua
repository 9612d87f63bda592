-- The functions of `string`, `table` and `coroutine` that could run long, or for ever, inside of Lua's own library in C,
-- where no instruction is counted: patterns, loops up to a length that a program names, sorting. Here each round is
-- counted, because it is Lua, or because `host` counts it.
local host, world = ...
local error, type, select, tostring, rawget = error, type, select, tostring, rawget
local setmetatable, resume = setmetatable, coroutine.resume
local rep, sub, concat, unpack = string.rep, string.sub, table.concat, table.unpack
local search, plain, order, stopping = host.search, host.plain, host.order, host.stopping

-- Errors are those of the program's line: so many functions further out.
local function bad(n, name, what, level)
  error("bad argument #" .. n .. " to '" .. name .. "' (" .. what .. ")", level)
end
local function expected(n, name, what, v, level)
  bad(n, name, what .. " expected, got " .. (v == nil and "no value" or type(v)), level or 5)
end
local function text(v, n, name)
  if type(v) == "string" then return v end
  if type(v) == "number" then return tostring(v) end
  expected(n, name, "string", v)
end
local function whole(v, n, name, default)
  if v == nil and default then return default end
  if type(v) == "number" then return v end
  local w = type(v) == "string" and host.integer(v)
  if w then return w end
  expected(n, name, "number", v)
end
local function list(t, n, name)
  if type(t) == "table" then return t end
  expected(n, name, "table", t)
end
-- What is called so has no name in a traceback, as what C calls.
local function itself(f) return f end
-- Results of a search; what is wrong with a pattern is the caller's error.
local function found(ok, ...)
  if ok then return ... end
  error((...), 3)
end

-- Strings.
local strings = world.string
function strings.rep(s, n, between)
  s, n, between = text(s, 1, "rep"), whole(n, 2, "rep"), between == nil and "" or text(between, 3, "rep")
  -- Nothing, taken very often, would be a loop without an end.
  if n <= 0 or #s + #between == 0 then return "" end
  return rep(s, n, between)
end
-- A place to begin at: from 1 on, or from the end.
local function begin(s, at)
  if at > 0 then return at end
  if at == 0 or at < -#s then return 1 end
  return #s + at + 1
end
local function caught(s, start, stop, count, ...)
  if count == 0 then return sub(s, start, stop) end
  return ...
end
local function places(start, stop, count, ...)
  if start then return start, stop, ... end
  return nil
end
function strings.find(s, p, at, exact)
  s, p = text(s, 1, "find"), text(p, 2, "find")
  at = begin(s, whole(at, 3, "find", 1))
  if at > #s + 1 then return nil end
  if exact then return plain(s, p, at) end
  return places(found(search(s, p, at, true)))
end
local function values(s, start, ...)
  if start then return caught(s, start, ...) end
  return nil
end
function strings.match(s, p, at)
  s, p = text(s, 1, "match"), text(p, 2, "match")
  at = begin(s, whole(at, 3, "match", 1))
  if at > #s + 1 then return nil end
  return values(s, found(search(s, p, at, true)))
end
function strings.gmatch(s, p)
  s, p = text(s, 1, "gmatch"), text(p, 2, "gmatch")
  local at, last = 1, nil
  local function next_one(start, stop, ...)
    if not start then
      at = #s + 2
      return nil
    end
    at, last = stop + 1, stop
    return caught(s, start, stop, ...)
  end
  return function()
    if at > #s + 1 then return nil end
    return next_one(found(search(s, p, at, false, last)))
  end
end
-- What '%1' and its kind stand for in a replacement.
local function filled(with, s, start, stop, count, ...)
  local out, at = {}, 1
  while true do
    local percent = plain(with, "%", at)
    if not percent then break end
    out[#out + 1] = sub(with, at, percent - 1)
    local kind = sub(with, percent + 1, percent + 1)
    local n = kind ~= "" and host.integer(kind)
    if kind == "%" then
      out[#out + 1] = "%"
    elseif not n then
      error("invalid use of '%' in replacement string", 4)
    elseif n == 0 or (n == 1 and count == 0) then
      out[#out + 1] = sub(s, start, stop)
    elseif n > count then
      error("invalid capture index", 4)
    else
      out[#out + 1] = (select(n, ...))
    end
    at = percent + 2
  end
  if at == 1 then return with end
  out[#out + 1] = sub(with, at)
  return concat(out)
end
function strings.gsub(s, p, with, most)
  s, p = text(s, 1, "gsub"), text(p, 2, "gsub")
  local kind = type(with)
  if kind == "number" then
    with, kind = tostring(with), "string"
  elseif kind ~= "string" and kind ~= "table" and kind ~= "function" then
    bad(3, "gsub", "string/function/table expected", 3)
  end
  most = whole(most, 4, "gsub", #s + 1)
  local anchored = sub(p, 1, 1) == "^"
  local out, done, at, last = {}, 0, 1, nil
  local function replaced(start, stop, count, ...)
    if not start then return false end
    out[#out + 1] = sub(s, at, start - 1)
    local value
    if kind == "string" then
      value = filled(with, s, start, stop, count, ...)
    elseif kind == "table" then
      value = with[(caught(s, start, stop, count, ...))]
    else
      value = itself(with)(caught(s, start, stop, count, ...))
    end
    if not value then
      value = sub(s, start, stop)
    elseif type(value) ~= "string" and type(value) ~= "number" then
      error("invalid replacement value (a " .. type(value) .. ")", 3)
    end
    out[#out + 1] = value
    at, last, done = stop + 1, stop, done + 1
    return true
  end
  while done < most and at <= #s + 1 and replaced(found(search(s, p, at, true, last))) do
    if anchored then break end
  end
  out[#out + 1] = sub(s, at)
  return concat(out), done
end

-- Tables.
local tables = world.table
function tables.concat(t, between, first, last)
  list(t, 1, "concat")
  between = between == nil and "" or text(between, 2, "concat")
  first, last = whole(first, 3, "concat", 1), last == nil and #t or whole(last, 4, "concat")
  local out, n, at = {}, 0, first
  while at <= last do
    local v = t[at]
    if type(v) ~= "string" and type(v) ~= "number" then
      error("invalid value (" .. type(v) .. ") at index " .. at .. " in table for 'concat'", 2)
    end
    n = n + 1
    out[n] = v
    if at == last then break end
    at = at + 1
  end
  return concat(out, between)
end
function tables.insert(t, ...)
  local count, at, v = select("#", ...), ...
  local size = #list(t, 1, "insert") + 1
  if count == 1 then
    t[size] = at
    return
  end
  if count ~= 2 then error("wrong number of arguments to 'insert'", 2) end
  at = whole(at, 2, "insert")
  if at < 1 or at > size then bad(2, "insert", "position out of bounds", 3) end
  for i = size, at + 1, -1 do t[i] = t[i - 1] end
  t[at] = v
end
function tables.remove(t, at)
  local size = #list(t, 1, "remove")
  if at == nil then
    at = size
  else
    at = whole(at, 2, "remove")
    if size + 1 ~= at and (at < 1 or at > size + 1) and not (size == 0 and at == 0) then
      bad(1, "remove", "position out of bounds", 3)
    end
  end
  local v = t[at]
  while at < size do
    t[at] = t[at + 1]
    at = at + 1
  end
  t[at] = nil
  return v
end
function tables.unpack(t, first, last)
  list(t, 1, "unpack")
  first, last = whole(first, 2, "unpack", 1), last == nil and #t or whole(last, 3, "unpack")
  if first > last then return end
  if last - first < 0 or last - first >= 1000000 then error("too many results to unpack", 2) end
  return unpack(t, first, last)
end
-- Merges ever longer runs.
local function merged(from, n, less)
  local to, width = {}, 1
  while width < n do
    local at = 1
    while at <= n do
      local mid, stop = at + width, at + 2 * width
      if mid > n + 1 then mid = n + 1 end
      if stop > n + 1 then stop = n + 1 end
      local i, j = at, mid
      for k = at, stop - 1 do
        if i < mid and (j >= stop or not itself(less)(from[j], from[i])) then
          to[k] = from[i]
          i = i + 1
        else
          to[k] = from[j]
          j = j + 1
        end
      end
      at = stop
    end
    from, to, width = to, from, width * 2
  end
  return from
end
local function smaller(a, b) return a < b end
function tables.sort(t, less)
  local n = #list(t, 1, "sort")
  if less ~= nil and type(less) ~= "function" then expected(2, "sort", "function", less, 4) end
  local all = {}
  for i = 1, n do all[i] = t[i] end
  local sorted = less == nil and order(all, n) or merged(all, n, less or smaller)
  for i = 1, n do t[i] = sorted[i] end
end

-- What is stopped stays stopped: catching that is no way to go on.
local function after(...)
  if stopping() then error("stopped", 0) end
  return ...
end
function world.coroutine.resume(co, ...)
  if type(co) ~= "thread" then bad(1, "resume", "coroutine expected", 3) end
  return after(resume(co, ...))
end
-- Finalizers run where nothing is counted.
function world.setmetatable(t, ...)
  local meta = ...
  if type(t) ~= "table" then expected(1, "setmetatable", "table", t, 4) end
  if select("#", ...) == 0 or meta ~= nil and type(meta) ~= "table" then
    bad(2, "setmetatable", "nil or table expected", 3)
  end
  local now = host.metatable(t)
  if now and rawget(now, "__metatable") ~= nil then error("cannot change a protected metatable", 2) end
  if type(meta) == "table" and (rawget(meta, "__gc") ~= nil or rawget(meta, "__close") ~= nil) then
    error("channel programs have no finalizers ('__gc', '__close')", 2)
  end
  return setmetatable(t, meta)
end
-- As a table says itself.
local function given(name, ...)
  local t = ...
  if type(t) == "table" then return t end
  bad(1, name, "table expected, got " .. (select("#", ...) == 0 and "no value" or type(t)), 4)
end
local walk, walked = world.pairs, world.ipairs
function world.pairs(...)
  return walk(given("pairs", ...))
end
function world.ipairs(...)
  local t = given("ipairs", ...)
  local meta = host.metatable(t)
  local own = meta and rawget(meta, "__ipairs")
  if own then
    local f, s, c = own(t)
    return f, s, c
  end
  return walked(t)
end
