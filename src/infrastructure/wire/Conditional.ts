/**
 * Whether If-None-Match names the tag of an answer, by the weak comparison of RFC 9110, 8.8.3.2. A proxy that
 * compresses answers makes their tags weak.
 */
export const namesTag = (ifNoneMatch: string | undefined, etag: string): boolean =>
  ifNoneMatch?.match(/"[^"]*"/g)?.includes(etag.replace(/^W\//, "")) === true

/**
 * Whether a client with this If-None-Match already has the answer with this tag. `*` stands for any answer that exists.
 */
export const isKnown = (ifNoneMatch: string | undefined, etag: string): boolean =>
  ifNoneMatch?.trim() === "*" || namesTag(ifNoneMatch, etag)

/** The bytes from `first` to `last`, both included. */
export interface ByteRange {
  readonly first: number
  readonly last: number
}

/**
 * The part of `size` bytes that a GET asks for (RFC 9110, 14.2): undefined for all bytes, "none" for a range that has
 * no byte of them. Several ranges, other units and malformed ranges are ignored, and so is a range with an If-Range
 * that does not have the tag.
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
