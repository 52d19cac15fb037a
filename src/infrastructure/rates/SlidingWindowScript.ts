import { SET_BACK_MS } from "#infrastructure/platform/MonotonicClock"
import { redisScript } from "#infrastructure/platform/Redis"
import { type Charge, RateRefusal } from "./RateRule.ts"

/**
 * True sliding windows in Redis, on Redis's clock. Each key holds a list of the times of accepted requests, in
 * microseconds, oldest first. The list never has more entries than the limit, and expires one window after its newest
 * entry. One run of the script decides many requests, one after the other.
 *
 * KEYS contains the windows of all requests. ARGV begins with two times: the current time (0 to use Redis's own clock),
 * and the latest time at which the script may count anything (0 for no bound). Then ARGV contains for each request:
 *
 * - the number of its windows,
 * - the number of its first windows that count even if other windows refuse,
 * - for each window, the limit and the length in milliseconds.
 *
 * The result begins with the time of the decision. If that time is later than the latest time allowed, the result
 * contains nothing else. Otherwise it contains for each request:
 *
 * - 0 if the request is accepted, i if its window i refuses it (if several windows refuse it, the one with the longest
 *   wait), or -1 if a key is not a list,
 * - the number of places taken,
 * - the wait in milliseconds, if the request is refused,
 * - for each place, the number of requests remaining, the milliseconds until the oldest entry leaves the window, and
 *   the time of the place.
 *
 * If the clock goes back, a window uses the time of its newest entry until the clock has caught up. If the newest entry
 * is more than a window or `SET_BACK_MS` ahead of the clock, the clock was set back, and the window is cleared instead.
 */
export const TAKE = redisScript(`
local given, latest = tonumber(ARGV[1]), tonumber(ARGV[2])
if given == 0 then
  local time = redis.call('TIME')
  given = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local answer = {given}
if latest > 0 and given > latest then return answer end

local givenText = string.format('%.0f', given)

local function timeOf(entry) return tonumber(entry or 0) or 0 end

-- Removes what is not after the time "before"; returns how many and the oldest that stays. Nearly always that is one or none.
local function prune(key, before)
  local gone, look = 0, 2
  while true do
    local times = redis.call('LRANGE', key, 0, look - 1)
    local passed = 0
    while passed < #times and timeOf(times[passed + 1]) <= before do passed = passed + 1 end
    if passed > 0 then redis.call('LTRIM', key, passed, -1) end
    gone = gone + passed
    if passed < look then return gone, times[passed + 1] end
    look = 100
  end
end

-- Takes a place in each of these windows, or in none. Returns 0, or the refusing window and the wait in milliseconds.
local function decide(keys, limits, windows, first, last, places)
  local now, counts, oldest, longest, refusing = {}, {}, {}, 0, 0
  for i = first, last do
    local count = redis.pcall('LLEN', keys[i])
    if type(count) == 'table' then return -1 end
    now[i] = given
    if count > 0 then
      local newest = timeOf(redis.call('LINDEX', keys[i], -1))
      if newest > given + math.min(windows[i], ${SET_BACK_MS * 1_000}) then
        redis.call('DEL', keys[i])
        count = 0
      else
        if newest > given then now[i] = newest end
        local gone
        gone, oldest[i] = prune(keys[i], now[i] - windows[i])
        count = count - gone
      end
    end
    if count >= limits[i] then
      local wait = timeOf(redis.call('LINDEX', keys[i], count - limits[i])) + windows[i] - now[i]
      if wait > longest then longest, refusing = wait, i end
    end
    counts[i] = count
  end
  if refusing > 0 then return refusing, math.max(1, math.ceil(longest / 1000)) end
  for i = first, last do
    redis.call('RPUSH', keys[i], now[i] == given and givenText or string.format('%.0f', now[i]))
    redis.call('PEXPIRE', keys[i], windows[i] / 1000)
    places[#places + 1] = limits[i] - counts[i] - 1
    places[#places + 1] = math.ceil(((oldest[i] and timeOf(oldest[i]) or now[i]) + windows[i] - now[i]) / 1000)
    places[#places + 1] = now[i]
  end
  return 0
end

local key, arg = 0, 2
while key < #KEYS do
  local count, alone = tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2])
  arg = arg + 2
  local keys, limits, windows, places = {}, {}, {}, {}
  for i = 1, count do
    keys[i], limits[i], windows[i] = KEYS[key + i], tonumber(ARGV[arg + 1]), tonumber(ARGV[arg + 2]) * 1000
    arg = arg + 2
  end
  key = key + count
  local code, wait = decide(keys, limits, windows, 1, alone, places)
  if code == 0 then code, wait = decide(keys, limits, windows, alone + 1, count, places) end
  answer[#answer + 1] = code
  answer[#answer + 1] = #places / 3
  if code > 0 then answer[#answer + 1] = wait end
  for i = 1, #places do answer[#answer + 1] = places[i] end
end
return answer
`)

const PREFIX = "parley:rate:"

/** Returns the Redis key of a window. */
export const windowKey = ({ key, rule }: Charge): string => `${PREFIX}${rule.name}:${key}`

/** The charges of one request. The first `alone` charges count even if the others are refused. */
export interface Taking {
  readonly charges: ReadonlyArray<Charge>
  readonly alone: number
}

/** A place in a window, as the script returns it. `at` is in microseconds of Redis's clock. */
export interface TakenPlace {
  readonly remaining: number
  readonly resetMs: number
  readonly at: number
}

export interface Taken {
  /** The places taken, in the order of the charges. If the request is refused, only its first charges took places. */
  readonly places: ReadonlyArray<TakenPlace>
  /** Undefined if the request is accepted. `NotWindow` if a key in Redis does not hold a window. */
  readonly refusal: RateRefusal | "NotWindow" | undefined
}

export interface TakenAll {
  /** The time of the decision, in microseconds of Redis's clock. */
  readonly at: number
  /** The result of each request. Undefined if Redis ran the command after its deadline, so that nothing was counted. */
  readonly all: ReadonlyArray<Taken> | undefined
}

export const takeKeys = (takings: ReadonlyArray<Taking>): ReadonlyArray<string> =>
  takings.flatMap(({ charges }) => charges.map(windowKey))

/** Makes the script's ARGV. Times are in microseconds, and 0 if not given. */
export const takeArguments = (takings: ReadonlyArray<Taking>, { latest = 0, now = 0 } = {}): ReadonlyArray<number> => {
  const args = [now, Math.ceil(latest)]
  for (const { alone, charges } of takings) {
    args.push(charges.length, alone)
    for (const { rule } of charges) args.push(rule.limit, rule.windowMs)
  }
  return args
}

/** Decodes the script's result. Returns undefined if the result is malformed. */
export const readTaken = (takings: ReadonlyArray<Taking>, answer: unknown): TakenAll | undefined => {
  if (!Array.isArray(answer) || !answer.every((part) => Number.isSafeInteger(part) && part >= -1)) return undefined
  // Checked in the line above.
  const figures = answer as ReadonlyArray<number>
  const at = figures[0]
  if (at === undefined || at < 1) return undefined
  if (figures.length === 1) return { at, all: undefined }
  let next = 1
  const all: Array<Taken> = []
  for (const { charges } of takings) {
    const code = figures[next++]
    const count = figures[next++]
    if (code === undefined || count === undefined || count < 0 || count > charges.length) return undefined
    let refusal: Taken["refusal"] = code === -1 ? "NotWindow" : undefined
    if (code > 0) {
      const charge = charges[code - 1]
      const waitMs = figures[next++]
      if (charge === undefined || waitMs === undefined || waitMs < 1 || waitMs > charge.rule.windowMs) return undefined
      refusal = new RateRefusal(charge.rule, waitMs)
    } else if (code === 0 && count < charges.length) return undefined
    const places: Array<TakenPlace> = []
    for (let i = 0; i < count; i++, next += 3) {
      const [remaining, resetMs, at] = [figures[next], figures[next + 1], figures[next + 2]]
      if (remaining === undefined || resetMs === undefined || at === undefined) return undefined
      places.push({ remaining, resetMs, at })
    }
    all.push({ places, refusal })
  }
  return next === figures.length ? { at, all } : undefined
}
