-- Prolongs a hold or refreshes a place. Never creates a hold, never shortens one.
-- ARGV: 1 `t1:<owner>:`, 2 owner, 3 term, 4 patience, 5 floor
-- Answers {'k', term} | {'b', ahead, remaining, holder} | {'l'} | {'n', type}
local owner = ARGV[2]
local holder = redis.pcall('GET', lock)
local other = type(holder) == 'table'

if not other and starts_with(holder, ARGV[1]) then
  local left = redis.call('PTTL', lock)
  if left < tonumber(ARGV[3]) then
    redis.call('PEXPIRE', lock, ARGV[3])
    left = tonumber(ARGV[3])
  end
  return {'k', left}
end

if not redis.call('ZSCORE', queue, owner) then return {'l'} end
local entry = redis.call('HGET', entries, owner)
local term, value, channel
if entry then term, value, channel = string.match(entry, '^%d+|(%d+)|([^|]*)|(.*)$') end
if not term then
  leave(owner)
  return {'l'}
end
write_entry(owner, ARGV[4], term, value, channel)
if other then return {'n', redis.call('TYPE', lock).ok} end
local left = redis.call('PTTL', lock)
if holder and left == -1 then return {'n', 'string without expiry'} end

if not holder then
  hand_over(tonumber(ARGV[5]))
  holder = redis.call('GET', lock)
  left = redis.call('PTTL', lock)
else
  live_head()
end
local ahead = redis.call('ZRANK', queue, owner)
-- Handed to this very owner: the message is on its way.
if not ahead and starts_with(holder, ARGV[1]) then ahead = 0 end
if not ahead then return {'l'} end
return {'b', ahead, left, holder}
