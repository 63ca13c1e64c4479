-- Asks to enter, after SET NX said that the key is held, or when the fresh hold it made passed a queue
-- or got a number that is too small.
-- ARGV: 1 `t1:<owner>:`, 2 owner, 3 term, 4 value, 5 pushed term, 6 patience, 7 channel, 8 join, 9 floor,
-- 10 whether a hold of this owner was made by this very request
-- Answers {'g', number, term, made} | {'b', ahead, remaining, holder} | {'n', type} | {'f'}
local mine, owner, term, value = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local join, floor, fresh = ARGV[8] == '1', tonumber(ARGV[9]), ARGV[10] == '1'

local kind = redis.call('TYPE', lock).ok
if kind ~= 'string' and kind ~= 'none' then return {'n', kind} end
local holder = redis.call('GET', lock)
local left = redis.call('PTTL', lock)
if holder and left == -1 then return {'n', 'string without expiry'} end

local is_mine = starts_with(holder, mine)
if is_mine and not fresh then
  redis.call('SET', lock, value, 'KEEPTTL')
  leave(owner)
  return {'g', mint(floor), left, 0}
end

if is_mine or not holder then
  local to = hand_over(floor, owner)
  if not to or to == owner then
    local number = mint(floor)
    if not is_mine then redis.call('SET', lock, value, 'PX', term) end
    return {'g', number, tonumber(term), 1}
  end
  holder = redis.call('GET', lock)
  left = redis.call('PTTL', lock)
end

if not join then return {'b', -1, left, holder} end

live_head()
if not redis.call('ZSCORE', queue, owner) then
  if redis.call('ZCARD', queue) >= 4096 then
    -- Places of the dead behind a live head go only now: it is rare, and costs a walk.
    for _, waiter in ipairs(redis.call('ZRANGE', queue, '0', '-1')) do
      if not read_entry(waiter) then leave(waiter) end
    end
    if redis.call('ZCARD', queue) >= 4096 then return {'f'} end
  end
  local last = redis.call('ZRANGE', queue, '-1', '-1', 'WITHSCORES')[2]
  redis.call('ZADD', queue, string.format('%.0f', (last or 0) + 1), owner)
end
write_entry(owner, ARGV[6], ARGV[5], value, ARGV[7])
return {'b', redis.call('ZRANK', queue, owner), left, holder}
