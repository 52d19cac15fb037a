import { type Charge, rateRefusal, type RateState } from "./RateRule.ts"
import { redisScript } from "./Redis.ts"
import type { RateLimited } from "./WireError.ts"

/**
 * True sliding windows in Redis, on its own clock: under each key a list of the times
 * (microseconds) of what was accepted, oldest first, as long as its limit at the most
 * and gone a window after the last one.
 *
 * KEYS: the windows. ARGV: the time, 0 for Redis's own; how many of the first windows
 * count whatever the others say; limit and window in milliseconds of each. Answers
 * `{0, remaining, reset, time, …}` with milliseconds and the time under which each place was
 * taken, or `{i, wait}` if the window i refuses; of those that refuse together, the one
 * with the longest wait.
 *
 * A clock that goes back stands still meanwhile, unless that would take longer than a window.
 */
export const TAKE = redisScript(`
local given = tonumber(ARGV[1])
local alone = tonumber(ARGV[2])
if given == 0 then
  local time = redis.call('TIME')
  given = tonumber(time[1]) * 1000000 + tonumber(time[2])
end

local function prune(key, before)
  local oldest = redis.call('LINDEX', key, 0)
  while oldest and tonumber(oldest) <= before do
    local times = redis.call('LRANGE', key, 0, 99)
    local gone = 0
    while gone < #times and tonumber(times[gone + 1]) <= before do gone = gone + 1 end
    redis.call('LTRIM', key, gone, -1)
    if gone < #times then return end
    oldest = redis.call('LINDEX', key, 0)
  end
end

local answer = {0}

local function decide(first, last)
  local now, longest, refusing = {}, 0, 0
  for i = first, last do
    local key, limit, window = KEYS[i], tonumber(ARGV[i * 2 + 1]), tonumber(ARGV[i * 2 + 2]) * 1000
    now[i] = given
    local newest = tonumber(redis.call('LINDEX', key, -1) or 0)
    if newest > given + window then
      redis.call('DEL', key)
    elseif newest > given then
      now[i] = newest
    end
    prune(key, now[i] - window)
    local count = redis.call('LLEN', key)
    if count >= limit then
      local wait = tonumber(redis.call('LINDEX', key, count - limit)) + window - now[i]
      if wait > longest then longest, refusing = wait, i end
    end
  end
  if refusing > 0 then return {refusing, math.max(1, math.ceil(longest / 1000))} end
  for i = first, last do
    local key, limit, window = KEYS[i], tonumber(ARGV[i * 2 + 1]), tonumber(ARGV[i * 2 + 2])
    local count = redis.call('RPUSH', key, string.format('%.0f', now[i]))
    redis.call('PEXPIRE', key, window)
    local oldest = tonumber(redis.call('LINDEX', key, 0))
    answer[#answer + 1] = limit - count
    answer[#answer + 1] = math.ceil((oldest + window * 1000 - now[i]) / 1000)
    answer[#answer + 1] = now[i]
  end
end

return decide(1, alone) or decide(alone + 1, #KEYS) or answer
`)

const PREFIX = "parley:rate:"

/** The key of a window in Redis. */
export const windowKey = ({ key, rule }: Charge): string => `${PREFIX}${rule.name}:${key}`

/** What the script is to be told; `alone` of the first charges count whatever the others say. */
export const takeArguments = (charges: ReadonlyArray<Charge>, alone: number, now = 0): ReadonlyArray<number> => [
  now,
  alone,
  ...charges.flatMap(({ rule }) => [rule.limit, rule.windowMs])
]

/** What it says; undefined if that makes no sense. */
export const readTaken = (
  charges: ReadonlyArray<Charge>,
  answer: unknown
): ReadonlyArray<RateState> | RateLimited | undefined => {
  if (!Array.isArray(answer) || !answer.every((part) => Number.isSafeInteger(part) && part >= 0)) return undefined
  const [refusing, ...figures] = answer as ReadonlyArray<number>
  if (refusing !== 0) {
    const charge = charges[(refusing ?? 0) - 1]
    const [waitMs] = figures
    return charge === undefined || waitMs === undefined || waitMs < 1 || waitMs > charge.rule.windowMs
      ? undefined
      : rateRefusal(charge.rule, waitMs)
  }
  if (figures.length !== charges.length * 3) return undefined
  return charges.map(({ rule }, i) => ({
    limit: rule.limit,
    remaining: figures[i * 3]!,
    resetMs: figures[i * 3 + 1]!,
    at: figures[i * 3 + 2]!
  }))
}
