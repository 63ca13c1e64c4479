-- Tries every command that the other scripts use, on names that nobody uses, without leaving anything.
-- KEYS: 1 a lock, 2 its queue, 3 its entries, 4 the counter. ARGV: 1 this client's channel
-- Answers the first command that was refused, or an empty string.
local calls = {
  {'TIME'}, {'TYPE', KEYS[1]}, {'PTTL', KEYS[1]}, {'EXISTS', KEYS[1]}, {'GET', KEYS[4]}, {'PEXPIRE', KEYS[1], '100'},
  {'SET', KEYS[1], '1', 'PX', '100'}, {'INCR', KEYS[1]}, {'DEL', KEYS[1]},
  {'ZADD', KEYS[2], '1', 'a'}, {'PEXPIRE', KEYS[2], '100'}, {'ZSCORE', KEYS[2], 'a'}, {'ZRANK', KEYS[2], 'a'},
  {'ZCARD', KEYS[2]}, {'ZRANGE', KEYS[2], '0', '0'}, {'ZREM', KEYS[2], 'a'},
  {'HSET', KEYS[3], 'a', 'b'}, {'PEXPIRE', KEYS[3], '100'}, {'HGET', KEYS[3], 'a'}, {'HDEL', KEYS[3], 'a'},
  {'PUBLISH', ARGV[1], 'p1'},
}
for _, call in ipairs(calls) do
  local answer = redis.pcall(unpack(call))
  if type(answer) == 'table' and answer.err then return call[1] .. ' ' .. answer.err end
end
return ''
