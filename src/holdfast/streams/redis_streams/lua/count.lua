-- How many entries stand after an id, and no more than so many are counted. KEYS: stream. ARGV: the id, the most.
return #redis.call('XRANGE', KEYS[1], '(' .. ARGV[1], '+', 'COUNT', ARGV[2])
