-- The rest of a release, where somebody waits. A holder that is a table is something else than a lock.
local waited = leave(string.sub(ARGV[1], 4, 35))
if is_mine or not holder then
  local to = hand_over(tonumber(ARGV[2]))
  if not to and is_mine then redis.call('DEL', lock) end
end
return (is_mine or waited) and 1 or 0
