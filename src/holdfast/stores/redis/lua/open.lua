-- The version of the schema; the first one to come sets it. args: 1 the version of this program.

redis.call('HSETNX', P .. 'meta', 'schema', args[1])
return { redis.call('HGET', P .. 'meta', 'schema'), string.format('%.17g', now) }
