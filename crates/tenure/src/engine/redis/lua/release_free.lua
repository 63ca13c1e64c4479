-- The common end of a hold, before anything else is set up: it is ours and nobody waits.
-- KEYS: 1 the lock, 2 its queue, 3 the entries of those who wait, 4 the counter of tokens.
-- ARGV: 1 `t1:<owner>:`, 2 floor
do
  local holder = redis.pcall('GET', KEYS[1])
  if type(holder) == 'string' and string.sub(holder, 1, 36) == ARGV[1] and redis.call('EXISTS', KEYS[2]) == 0 then
    redis.call('DEL', KEYS[1])
    return 1
  end
end
