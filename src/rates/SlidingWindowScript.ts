import { type Charge, rateRefusal } from "./RateRule.ts"
import { redisScript } from "../platform/Redis.ts"
import type { RateLimited } from "../wire/WireError.ts"

/**
 * True sliding windows in Redis, on its own clock: under each key a list of the times
 * (microseconds) of what was accepted, oldest first, as long as its limit at the most
 * and gone a window after the last one. One run decides many requests, one after the other.
 *
 * KEYS: the windows of all requests. ARGV: the time, 0 for Redis's own; the time after which
 * nothing is counted any more, 0 for none; then for each request how many windows it has, how
 * many of them count whatever the others say (the first ones), and limit and window in
 * milliseconds of each.
 *
 * Answers its time, and nothing else if that is too late. Then for each request: 0 if it is
 * accepted, i if its window i refuses it (of those that refuse together, the one with the
 * longest wait), -1 if a key holds something else; how many places were taken; the wait in
 * milliseconds, if refused; and of each place what remains, the milliseconds until the
 * window holds one less, and the time under which it was taken.
 *
 * A clock that goes back stands still meanwhile, unless that would take longer than a window.
 */
export const TAKE = redisScript(`
local given, latest = tonumber(ARGV[1]), tonumber(ARGV[2])
if given == 0 then
  local time = redis.call('TIME')
  given = tonumber(time[1]) * 1000000 + tonumber(time[2])
end
local answer = {given}
if latest > 0 and given > latest then return answer end

local function timeOf(entry) return tonumber(entry or 0) or 0 end

local function prune(key, before)
  local oldest = redis.call('LINDEX', key, 0)
  while oldest and timeOf(oldest) <= before do
    local times = redis.call('LRANGE', key, 0, 99)
    local gone = 0
    while gone < #times and timeOf(times[gone + 1]) <= before do gone = gone + 1 end
    redis.call('LTRIM', key, gone, -1)
    if gone < #times then return end
    oldest = redis.call('LINDEX', key, 0)
  end
end

-- Takes a place in each of these windows or in none: which one refuses and the wait, or 0.
local function decide(keys, limits, windows, first, last, places)
  local now, longest, refusing = {}, 0, 0
  for i = first, last do
    local newest = redis.pcall('LINDEX', keys[i], -1)
    if type(newest) == 'table' then return -1 end
    newest = timeOf(newest)
    now[i] = given
    if newest > given + windows[i] then
      redis.call('DEL', keys[i])
    elseif newest > given then
      now[i] = newest
    end
    prune(keys[i], now[i] - windows[i])
    local count = redis.call('LLEN', keys[i])
    if count >= limits[i] then
      local wait = timeOf(redis.call('LINDEX', keys[i], count - limits[i])) + windows[i] - now[i]
      if wait > longest then longest, refusing = wait, i end
    end
  end
  if refusing > 0 then return refusing, math.max(1, math.ceil(longest / 1000)) end
  for i = first, last do
    local count = redis.call('RPUSH', keys[i], string.format('%.0f', now[i]))
    redis.call('PEXPIRE', keys[i], windows[i] / 1000)
    local oldest = timeOf(redis.call('LINDEX', keys[i], 0))
    places[#places + 1] = limits[i] - count
    places[#places + 1] = math.ceil((oldest + windows[i] - now[i]) / 1000)
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

/** The key of a window in Redis. */
export const windowKey = ({ key, rule }: Charge): string => `${PREFIX}${rule.name}:${key}`

/** What one request takes; the first `alone` places whatever the windows of the others say. */
export interface Taking {
  readonly charges: ReadonlyArray<Charge>
  readonly alone: number
}

/** A place in a window, as Redis tells of it. */
export interface TakenPlace {
  readonly remaining: number
  readonly resetMs: number
  readonly at: number
}

export interface Taken {
  /** Of the first windows; those that are missing were not taken. */
  readonly places: ReadonlyArray<TakenPlace>
  /** Undefined: the request is accepted. `Broken`: a key holds something else than a window. */
  readonly refusal: RateLimited | "Broken" | undefined
}

export interface TakenAll {
  /** When it was decided, in microseconds of Redis's clock. */
  readonly at: number
  /** One for each request; undefined: it was too late, and nothing was counted. */
  readonly all: ReadonlyArray<Taken> | undefined
}

export const takeKeys = (takings: ReadonlyArray<Taking>): ReadonlyArray<string> =>
  takings.flatMap(({ charges }) => charges.map(windowKey))

/** What the script is to be told; times in microseconds, 0 for none. */
export const takeArguments = (takings: ReadonlyArray<Taking>, { latest = 0, now = 0 } = {}): ReadonlyArray<number> => {
  const args = [now, Math.ceil(latest)]
  for (const { alone, charges } of takings) {
    args.push(charges.length, alone)
    for (const { rule } of charges) args.push(rule.limit, rule.windowMs)
  }
  return args
}

/** What it says; undefined if that makes no sense. */
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
    let refusal: Taken["refusal"] = code === -1 ? "Broken" : undefined
    if (code > 0) {
      const charge = charges[code - 1]
      const waitMs = figures[next++]
      if (charge === undefined || waitMs === undefined || waitMs < 1 || waitMs > charge.rule.windowMs) return undefined
      refusal = rateRefusal(charge.rule, waitMs)
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
