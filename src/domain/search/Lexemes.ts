import type { Term } from "./SearchQuery.ts"
import { lookupsOf } from "./SearchQuery.ts"

/**
 * The lexemes of a message in the index. The lexeme of a word begins with the month of the message, so that a prefix is
 * looked up among the words of one month. Further tokens contain the sender, the recipient or the group of the message,
 * each with the day and with the month. So one look-up finds only messages of the caller, and a search can begin with
 * the newest days. Ids are shortened to their last eight characters, which are random. If another id ends with the same
 * characters, its messages are dropped later, when the candidates are compared with the history.
 */

const DAY_MS = 86_400_000
/** The number of days in a month of the index. */
export const MONTH = 30

export const dayOf = (at: number): number => Math.floor(at / DAY_MS)
export const monthOf = (day: number): number => Math.floor(day / MONTH)
export const startOfDay = (day: number): number => day * DAY_MS

/** The last `digits` digits of `number` in base 36. */
const base36 = (number: number, digits: number): string => (number % 36 ** digits).toString(36).padStart(digits, "0")
const monthName = (month: number): string => base36(month, 2)
const dayName = (day: number): string => base36(day, 3)

/** The roles of an agent or a group in a message. */
const SENDER = "s"
const RECIPIENT = "r"
const GROUP = "g"
const SENDER_IN_GROUP = "m"

const token = (part: string, period: string, id: string): string => `-${part}${period}${id.slice(-8)}`

/** The part of a message that is indexed. */
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

// Lexemes contain only letters, digits, marks, `-` and `_`, so no character needs an escape.
const quoted = (lexeme: string): string => `'${lexeme}'`

/** The text of a `tsvector` with these lexemes. */
export const vectorOf = (lexemes: ReadonlyArray<string>): string => lexemes.map(quoted).join(" ")

/** The messages to which a search is restricted. */
export interface SearchScope {
  readonly callerId: string
  /** The other agent of the conversation, for a search in one direct conversation; otherwise `null`. */
  readonly counterpartyId: string | null
  /** Whether direct messages are searched. */
  readonly direct: boolean
  readonly groupIds: ReadonlyArray<string>
  /** The sender, for a search of one sender's messages; otherwise `null`. */
  readonly from: string | null
}

/** The days or the months of one window of a search, newest first. */
export type Periods = { readonly days: ReadonlyArray<number> } | { readonly months: ReadonlyArray<number> }

const anyOf = (parts: ReadonlyArray<string>): string => `(${parts.join(" | ")})`
const allOf = (parts: ReadonlyArray<string>): string => `(${parts.join(" & ")})`

/** The condition on the tokens of one period; undefined if no message can match. */
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

/**
 * The text of the `tsquery` for messages of these periods that contain all terms; undefined if no message can match.
 */
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
