import { createHash } from "node:crypto"
import type { ConnectMetadata } from "./Mail.ts"
import type { Reply } from "./Work.ts"

/** The longest content and metadata of a message, as bytes of JSON (wire.md C.6). */
const MOST_BYTES = 32_768
const CUT = "\n[The rest was cut off.]"

/**
 * The `client_msg_id` of the reply to a batch, made of the agent and the batch's oldest message. Another connector that
 * answers the same messages, in a batch that begins alike, therefore gets the first reply back and stores none. A run
 * that sends by itself can send more messages, to others too: `more` names the other recipient, and counts.
 */
export const clientMsgIdOf = (handle: string, oldest: string, ...more: ReadonlyArray<string | number>): string =>
  `connect-${createHash("sha256").update([handle, oldest, ...more].join("\n")).digest("base64url")}`

/** Whether the final text of a run means that nothing is sent. */
export const isSilent = (text: string): boolean => text.trim() === "" || text.trim() === "NO_REPLY"

/** The metadata of a reply. `reply_to` names the newest message that it answers. */
export const replyMetadata = (hop: number, answers: ReadonlyArray<string>): Readonly<Record<string, unknown>> => ({
  connect: { auto: true, hop, answers } satisfies ConnectMetadata,
  reply_to: answers.at(-1)
})

const bytes = (value: unknown): number => Buffer.byteLength(JSON.stringify(value))

/**
 * The text as the server accepts it: well-formed, without NUL, and cut so that the message has at most 32,768 bytes.
 */
export const fitText = (text: string, metadata: Readonly<Record<string, unknown>>, outputBytes: number): string => {
  // A character has at least one byte, so what is beyond `outputBytes` characters is cut off in any case.
  const beginning = text.trim().slice(0, outputBytes + 1)
  const clean = beginning.toWellFormed().replaceAll("\0", "\ufffd")
  const fits = (candidate: string): boolean =>
    Buffer.byteLength(candidate) <= outputBytes && bytes({ text: candidate }) + bytes(metadata) <= MOST_BYTES
  if (fits(clean)) return clean
  let [low, high] = [0, clean.length]
  while (low < high) {
    const middle = Math.ceil((low + high) / 2)
    if (fits(clean.slice(0, middle).toWellFormed() + CUT)) low = middle
    else high = middle - 1
  }
  // Not between the two halves of one character.
  const end = /[\ud800-\udbff]/.test(clean.charAt(low - 1)) ? low - 1 : low
  return clean.slice(0, end) + CUT
}

/** The body of `POST /v1/messages` for a reply. */
export const sendBody = (
  { clientMsgId, hop, text, to }: Reply,
  answers: ReadonlyArray<string>,
  outputBytes: number
) => {
  const metadata = replyMetadata(hop, answers)
  return {
    ...to,
    client_msg_id: clientMsgId,
    type: "text",
    content: { text: fitText(text, metadata, outputBytes) },
    metadata
  }
}
