-- What every script about a key starts with.
-- KEYS: 1 the lock, 2 its queue, 3 the entries of those who wait, 4 the counter of tokens.
local lock, queue, entries, counter = KEYS[1], KEYS[2], KEYS[3], KEYS[4]

local instant
local function now_us()
  if not instant then
    local time = redis.call('TIME')
    instant = time[1] * 1000000 + time[2]
  end
  return instant
end

local function starts_with(value, prefix)
  return value and string.sub(value, 1, #prefix) == prefix
end

-- The number that INCR will give, after raising the counter if that would not be above the floor.
local function next_number(floor)
  local last = tonumber(redis.call('GET', counter) or '0')
  if last < floor then
    last = math.max(last, now_us() + 10000000)
    redis.call('SET', counter, string.format('%.0f', last))
  end
  return last + 1
end

local function mint(floor)
  next_number(floor)
  return redis.call('INCR', counter)
end

-- An entry is "deadline|term|value|channel"; values hold no bar.
local function read_entry(owner)
  local entry = redis.call('HGET', entries, owner)
  if not entry then return nil end
  local deadline, term, value, channel = string.match(entry, '^(%d+)|(%d+)|([^|]*)|(.*)$')
  if not deadline or tonumber(deadline) * 1000 <= now_us() then return nil end
  return term, value, channel
end

local function write_entry(owner, patience, term, value, channel)
  local deadline = string.format('%.0f', math.floor(now_us() / 1000) + tonumber(patience))
  redis.call('HSET', entries, owner, deadline .. '|' .. term .. '|' .. value .. '|' .. channel)
  -- Deadlines are three seconds ahead at most.
  redis.call('PEXPIRE', queue, '4000')
  redis.call('PEXPIRE', entries, '4000')
end

local function leave(owner)
  redis.call('HDEL', entries, owner)
  return redis.call('ZREM', queue, owner) == 1
end

-- Removes those at the head that stopped refreshing their place; the head that is left, if any.
-- The queue has 4096 places at most, so this ends.
local function live_head()
  for _ = 1, 4100 do
    local head = redis.call('ZRANGE', queue, '0', '0')[1]
    if not head then return nil end
    local term, value, channel = read_entry(head)
    if term then return head, term, value, channel end
    leave(head)
  end
  return nil
end

-- Gives the key, which is free or the caller's, to the first waiter that can hear of it.
-- Publishes before it sets: who cannot be told is skipped, and claims anew when it asks.
-- Answers who got it; the caller itself, if it is the first, is only taken out of the queue.
local function hand_over(floor, me)
  for _ = 1, 4100 do
    local head, term, value, channel = live_head()
    if not head then return nil end
    leave(head)
    if head == me then return me end
    local number = string.format('%.0f', next_number(floor))
    local heard = redis.pcall('PUBLISH', channel, 'g1:' .. head .. ':' .. number .. ':' .. term .. ':' .. lock)
    if type(heard) == 'number' and heard > 0 then
      redis.call('INCR', counter)
      redis.call('SET', lock, value, 'PX', term)
      return head
    end
  end
  return nil
end

