import { createHash } from "node:crypto"
import type { ConnectMetadata } from "./Mail.ts"
import type { Reply } from "./Work.ts"

/** How many bytes of JSON the content and the metadata of a message may have together (wire.md C.6). */
const MAX_REPLY_BYTES = 32_768
const CUT = "\n[The rest was cut off.]"

/**
 * The `client_msg_id` of the reply to a batch, made from the agent and the batch's oldest message. If another connector
 * answers a batch with the same oldest message, the server therefore returns the first reply and stores no second one.
 * A run that sends messages itself can send several, also to other recipients. For these messages, `more` contains the
 * recipient and a count.
 */
export const clientMsgIdOf = (handle: string, oldest: string, ...more: ReadonlyArray<string | number>): string =>
  `connect-${createHash("sha256").update([handle, oldest, ...more].join("\n")).digest("base64url")}`

/** Whether the final text of a run means that no reply is sent. */
export const isSilent = (text: string): boolean => text.trim() === "" || text.trim() === "NO_REPLY"

/**
 * The metadata of a message that a connector sends. `reply_to` is the newest message that it answers, and `caused_by` the
 * message with the most hops of those that began its run (wire.md G.19).
 */
export const replyMetadata = (
  hop: number,
  answers: ReadonlyArray<string>,
  cause: string | undefined
): Readonly<Record<string, unknown>> => ({
  connect: { auto: true, hop, answers } satisfies ConnectMetadata,
  reply_to: answers.at(-1),
  caused_by: cause
})

const bytes = (value: unknown): number => Buffer.byteLength(JSON.stringify(value))

/**
 * Makes a text acceptable for the server: well-formed, without NUL, and cut so that the message has at most 32,768
 * bytes.
 */
export const fitText = (text: string, metadata: Readonly<Record<string, unknown>>, outputBytes: number): string => {
  // A character has at least one byte, so everything after `outputBytes` characters is cut off in any case.
  const beginning = text.trim().slice(0, outputBytes + 1)
  const clean = beginning.toWellFormed().replaceAll("\0", "\ufffd")
  const fits = (candidate: string): boolean =>
    Buffer.byteLength(candidate) <= outputBytes && bytes({ text: candidate }) + bytes(metadata) <= MAX_REPLY_BYTES
  if (fits(clean)) return clean
  let [low, high] = [0, clean.length]
  while (low < high) {
    const middle = Math.ceil((low + high) / 2)
    if (fits(clean.slice(0, middle).toWellFormed() + CUT)) low = middle
    else high = middle - 1
  }
  // Do not cut between the two surrogates of one character.
  const end = /[\ud800-\udbff]/.test(clean.charAt(low - 1)) ? low - 1 : low
  return clean.slice(0, end) + CUT
}

/** The body of `POST /v1/messages` for a reply. */
export const sendBody = (
  { clientMsgId, hop, text, to }: Reply,
  answers: ReadonlyArray<string>,
  outputBytes: number,
  cause: string | undefined
) => {
  const metadata = replyMetadata(hop, answers, cause)
  return {
    ...to,
    client_msg_id: clientMsgId,
    type: "text",
    content: { text: fitText(text, metadata, outputBytes) },
    metadata
  }
}
