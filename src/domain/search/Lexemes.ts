import type { Term } from "./SearchQuery.ts"
import { lookupsOf } from "./SearchQuery.ts"

/**
 * The lexemes of a message in the index. Each of its words begins with the month of the message, so that a prefix is
 * looked up among the words of one month. Further tokens say, by day and by month, who sent the message to whom. So one
 * look-up finds messages of the caller only, of the newest days first. An id is shortened to its random part.
 * Candidates of another id with the same part are left out later, when the candidates are compared with the history.
 */

const DAY_MS = 86_400_000
/** Days in a month of the index. */
export const MONTH = 30

export const dayOf = (at: number): number => Math.floor(at / DAY_MS)
export const monthOf = (day: number): number => Math.floor(day / MONTH)
export const startOfDay = (day: number): number => day * DAY_MS

/** `number` in `digits` digits of base 36. */
const base36 = (number: number, digits: number): string => (number % 36 ** digits).toString(36).padStart(digits, "0")
const monthName = (month: number): string => base36(month, 2)
const dayName = (day: number): string => base36(day, 3)

/** The roles that an agent or a group has in a message. */
const SENDER = "s"
const RECIPIENT = "r"
const GROUP = "g"
const SENDER_IN_GROUP = "m"

const token = (part: string, period: string, id: string): string => `-${part}${period}${id.slice(-8)}`

/** A message, as far as the index has it. */
export interface Indexed {
  readonly conversationId: string
  readonly senderId: string
  /** `null` in a group. */
  readonly recipientId: string | null
  readonly createdAt: number
  readonly words: ReadonlySet<string>
}

/** The lexemes of a message. */
export const lexemesOf = (
  { conversationId, createdAt, recipientId, senderId, words }: Indexed
): ReadonlyArray<string> => {
  const day = dayOf(createdAt)
  const month = monthName(monthOf(day))
  const tokens = [dayName(day), month].flatMap((period) =>
    recipientId === null
      ? [token(GROUP, period, conversationId), token(SENDER_IN_GROUP, period, senderId)]
      : [token(SENDER, period, senderId), token(RECIPIENT, period, recipientId)]
  )
  return [...tokens, ...Array.from(words, (word) => month + word)]
}

// Lexemes have letters, digits, marks, `-` and `_` only, so that none needs an escape.
const quoted = (lexeme: string): string => `'${lexeme}'`

/** The value of a `tsvector`, as text. */
export const vectorOf = (lexemes: ReadonlyArray<string>): string => lexemes.map(quoted).join(" ")

/** Whose messages a search is for. */
export interface SearchScope {
  readonly callerId: string
  /** The only other agent, for a search in a direct conversation, or `null`. */
  readonly counterpartyId: string | null
  /** Whether direct messages are searched. */
  readonly direct: boolean
  readonly groupIds: ReadonlyArray<string>
  /** The only sender, or `null`. */
  readonly from: string | null
}

/** The days or the months of a part of a search, the newest first. */
export type Periods = { readonly days: ReadonlyArray<number> } | { readonly months: ReadonlyArray<number> }

const anyOf = (parts: ReadonlyArray<string>): string => `(${parts.join(" | ")})`
const allOf = (parts: ReadonlyArray<string>): string => `(${parts.join(" & ")})`

/** The condition for one period; undefined if no message can match. */
const within = (
  period: string,
  { callerId, counterpartyId, direct, from, groupIds }: SearchScope
): string | undefined => {
  const tokenOf = (part: string, id: string) => quoted(token(part, period, id))
  const sent = counterpartyId === null
    ? tokenOf(SENDER, callerId)
    : allOf([tokenOf(SENDER, callerId), tokenOf(RECIPIENT, counterpartyId)])
  const sender = from === callerId ? null : from ?? counterpartyId
  const received = sender === null
    ? tokenOf(RECIPIENT, callerId)
    : allOf([tokenOf(SENDER, sender), tokenOf(RECIPIENT, callerId)])
  const isPossible = counterpartyId === null || from === null || from === callerId || from === counterpartyId
  const groups = groupIds.length === 0 ? [] : [anyOf(groupIds.map((id) => tokenOf(GROUP, id)))]
  const parts = [
    ...(direct && isPossible && (from === null || from === callerId) ? [sent] : []),
    ...(direct && isPossible && from !== callerId ? [received] : []),
    ...(from === null ? groups : groups.map((any) => allOf([any, tokenOf(SENDER_IN_GROUP, from)])))
  ]
  return parts.length === 0 ? undefined : anyOf(parts)
}

/** The `tsquery` for the messages of some periods that have all terms, as text; undefined if no message can match. */
export const queryOf = (scope: SearchScope, terms: ReadonlyArray<Term>, periods: Periods): string | undefined => {
  const names = new Map<number, Array<string>>()
  for (
    const [month, name] of "days" in periods
      ? periods.days.map((day) => [monthOf(day), dayName(day)] as const)
      : periods.months.map((month) => [month, monthName(month)] as const)
  ) {
    names.set(month, [...names.get(month) ?? [], name])
  }
  const parts = Array.from(names, ([month, periodsOfMonth]) => {
    const whose = periodsOfMonth.flatMap((name) => within(name, scope) ?? [])
    if (whose.length === 0) return []
    const words = terms.flatMap(lookupsOf).map(({ isPrefix, word }) =>
      quoted(monthName(month) + word) + (isPrefix ? ":*" : "")
    )
    return [allOf([anyOf(whose), ...words])]
  }).flat()
  return parts.length === 0 ? undefined : parts.join(" | ")
}
