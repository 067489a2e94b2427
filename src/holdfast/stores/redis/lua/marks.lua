-- Marks say in which blocks of 256 jobs there is, or was, one of a lane ('l' and its number), a tenant ('t' and its name), a
-- user ('u') or a project ('p'): members of one sorted set, in the order of their bytes.

local BLOCK = 256

local function mark_of(name, block)
  return struct.pack('>I4', #name) .. name .. struct.pack('>I4', block)
end
