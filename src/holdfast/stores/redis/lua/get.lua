-- The whole records of those that are there. args: 1 ids.

local ids, texts = {}, {}
for i, text in ipairs(read_many('state', args[1])) do
  if text then
    ids[#ids + 1] = args[1][i]
    texts[#texts + 1] = text
  end
end
return records_of(ids, read_many('job', ids), texts, true)
