-- Stores a record beside the key, if the owner holds it.
-- KEYS: 1 the lock, 2 the record. ARGV: 1 `t1:<owner>:`, 2 the record
-- Answers 1, or 0 if the owner does not hold the key.
local holder = redis.pcall('GET', KEYS[1])
if type(holder) ~= 'string' or string.sub(holder, 1, #ARGV[1]) ~= ARGV[1] then return 0 end
local time = redis.call('TIME')
redis.call('SET', KEYS[2], string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000)) .. ':' .. ARGV[2])
return 1
