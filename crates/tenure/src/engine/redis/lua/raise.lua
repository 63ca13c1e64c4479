-- Raises the counter of tokens when a connection is made (R6), and answers it: the connection's floor.
-- KEYS: 1 the counter, 2 the run id of the server that last raised it. ARGV: 1 this server's run id
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local stored = redis.call('GET', KEYS[1])
local last = tonumber(stored or '0')
if not last then return redis.error_reply('TENURE the counter of tokens holds something else: ' .. KEYS[1]) end
if not stored or redis.call('GET', KEYS[2]) ~= ARGV[1] then
  -- Another server, or one that lost it: the last numbers may be missing, and its clock may be behind.
  now = now + 10000000
  redis.call('SET', KEYS[2], ARGV[1])
end
if now > last then
  redis.call('SET', KEYS[1], string.format('%.0f', now))
  last = now
end
return string.format('%.0f', last)
