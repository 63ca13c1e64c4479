-- Gives back a hold, or a place in the queue, or both.
-- ARGV: 1 `t1:<owner>:`, 2 owner, 3 floor
-- Answers 1 if there was something to give back, else 0.
local holder = redis.pcall('GET', lock)
if type(holder) == 'table' then holder = '' end -- something else than a lock
local is_mine = starts_with(holder, ARGV[1])

if redis.call('EXISTS', queue) == 0 then
  if is_mine then redis.call('DEL', lock) end
  return is_mine and 1 or 0
end

local waited = leave(ARGV[2])
if is_mine or not holder then
  local to = hand_over(tonumber(ARGV[3]))
  if not to and is_mine then redis.call('DEL', lock) end
end
return (is_mine or waited) and 1 or 0
