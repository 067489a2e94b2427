-- The hot call: settle, change values, count and claim, in this order.
-- args: 1 settlements, 2 changes, 3 counts, 4 the wish or nil, 5 the newest version that was seen, 6 the name of the
-- counts, {worker, number}, or nil.
-- One that is sent again after its answer was lost counts nothing, and claims nothing more.

go_on_when_full()
local is_first = (#args[3] > 0 or args[4]) and is_first_time()
local settled = #args[1] > 0 and settle(args[1]) or ''
local newest = newest_version()
local changed = #args[2] > 0 and change_values(args[2]) or ''
flush() -- before the counts: a number that Redis cannot add ends the script, and must not leave anything by half
if #args[3] > 0 and is_new(args[6], is_first) then
  add_counts(args[3])
end
local ids, texts, next_due_s = {}, {}, nil
if args[4] then
  ids, texts, next_due_s = claim(args[4], is_first)
  flush()
end
local facts, more
ids, facts, texts, more = deliveries_of(ids, texts)
return {
  string.format('%.17g', now), settled, changed, next_due_s and string.format('%.17g', next_due_s) or '', newest,
  ids, facts, texts, more, values_above(args[5]),
}
