/**
 * How long an id of JSON-RPC or a progress token may be, in characters. Answers and events repeat it, and a request
 * that waits keeps it.
 */
export const MAX_RPC_ID = 256
