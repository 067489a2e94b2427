-- The usual way of new jobs. new_jobs.lua says what it is told and what it answers.

local answers, added, scopes = look()
if #added > 0 then
  add(added, scopes)
end
if #added == #jobs then
  return {}
end
return answers
