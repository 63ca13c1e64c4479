-- Who holds the key, who waits, and the record beside it.
-- KEYS: 1 the lock, 2 its queue, 3 the entries, 4 the record
-- Answers {'v', holder, remaining, waiters, record, its age} | {'n', type}
local kind = redis.call('TYPE', KEYS[1]).ok
if kind ~= 'string' and kind ~= 'none' then return {'n', kind} end
local holder = redis.call('GET', KEYS[1])
local left = redis.call('PTTL', KEYS[1])
if holder and left == -1 then return {'n', 'string without expiry'} end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local waiters = {}
for _, owner in ipairs(redis.call('ZRANGE', KEYS[2], '0', '-1')) do
  local entry = redis.call('HGET', KEYS[3], owner)
  local deadline = entry and tonumber(string.match(entry, '^(%d+)|'))
  if deadline and deadline > now then waiters[#waiters + 1] = owner end
end

local note, age = redis.call('GET', KEYS[4]), 0
if note then
  local stored, record = string.match(note, '^(%d+):(.*)$')
  if stored then
    note, age = record, math.max(0, now - tonumber(stored))
  else
    note = false
  end
end
return {'v', holder, left, waiters, note, age}
