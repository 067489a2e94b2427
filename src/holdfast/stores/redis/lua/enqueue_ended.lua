-- New jobs of which some come with their end. new_jobs.lua says what it is told and what it answers.

local answers, added, scopes = look()
for i = 1, #answers, 3 do
  if answers[i] == 'c' then
    return answers
  end
end
if #added > 0 then
  add(added, scopes)
end
end_all(args[3], answers)
flush()
return answers
