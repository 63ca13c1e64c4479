-- Gives back a hold, or a place in the queue, or both.
-- KEYS: 1 the lock, 2 its queue, 3 the entries of those who wait, 4 the counter of tokens.
-- ARGV: 1 `t1:<owner>:`, 2 floor
-- Answers 1 if there was something to give back, else 0.
-- This part comes before all else, because nobody waits for most keys and every step counts there.
local holder = redis.pcall('GET', KEYS[1])
local is_mine = type(holder) == 'string' and string.sub(holder, 1, 36) == ARGV[1]
if redis.call('EXISTS', KEYS[2]) == 0 then
  if is_mine then return redis.call('DEL', KEYS[1]) end
  return 0
end

