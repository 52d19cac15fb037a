/**
 * Whether If-None-Match contains the ETag of a response, with the weak comparison of RFC 9110, 8.8.3.2. The comparison
 * is weak because a proxy that compresses a response makes its ETag weak.
 */
export const namesTag = (ifNoneMatch: string | undefined, etag: string): boolean =>
  ifNoneMatch?.match(/"[^"]*"/g)?.includes(etag.replace(/^W\//, "")) === true

/** Whether a client that sends this If-None-Match already has the response with this ETag. `*` matches every ETag. */
export const isKnown = (ifNoneMatch: string | undefined, etag: string): boolean =>
  ifNoneMatch?.trim() === "*" || namesTag(ifNoneMatch, etag)

/** The bytes from `first` to `last`, both included. */
export interface ByteRange {
  readonly first: number
  readonly last: number
}

/**
 * Returns the range of bytes that a GET asks for, out of `size` bytes (RFC 9110, 14.2). Returns undefined if all bytes
 * are to be sent, and "none" if no byte lies in the range. The function ignores several ranges, other units, malformed
 * ranges, and a range whose If-Range is not `etag`.
 */
export const rangeOf = (
  headers: Readonly<Record<string, string | undefined>>,
  size: number,
  etag: string
): ByteRange | "none" | undefined => {
  const [, from, to] = /^bytes=[ \t]*(\d*)-(\d*)[ \t]*$/i.exec(headers["range"] ?? "") ?? []
  if (from === undefined || to === undefined || from + to === "") return undefined
  if (headers["if-range"] !== undefined && headers["if-range"].trim() !== etag) return undefined
  if (from === "") return Number(to) === 0 ? "none" : { first: Math.max(0, size - Number(to)), last: size - 1 }
  if (to !== "" && Number(to) < Number(from)) return undefined
  if (Number(from) >= size) return "none"
  return { first: Number(from), last: to === "" ? size - 1 : Math.min(Number(to), size - 1) }
}
