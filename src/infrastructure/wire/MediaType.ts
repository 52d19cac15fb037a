const MAX_LENGTH = 255
const TOKEN = "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
const TYPE = new RegExp(`^(${TOKEN}/${TOKEN})$`)
const PARAMETER = new RegExp(`^(${TOKEN})=(?:(${TOKEN})|"((?:[^"\\\\]|\\\\.)*)")$`)
const CHARSET = /^[a-z0-9][a-z0-9._:+-]{0,39}$/

/** A media type in lower case, and the `charset` among its parameters. */
export interface MediaType {
  readonly type: string
  readonly charset: string | undefined
}

/** Splits a text at the semicolons that are not inside quotes. */
const partsOf = (text: string): ReadonlyArray<string> =>
  (text.match(/(?:"(?:[^"\\]|\\.)*"|[^;"]|")+/g) ?? []).map((part) => part.trim())

/**
 * Parses a media type with its parameters (RFC 9110, 8.3.1). Returns undefined if the text is not a media type or is
 * longer than 255 characters.
 */
export const parseMediaType = (text: string): MediaType | undefined => {
  if (text.length > MAX_LENGTH) return undefined
  const [first = "", ...parameters] = partsOf(text)
  if (!TYPE.test(first)) return undefined
  let charset: string | undefined
  for (const parameter of parameters) {
    if (parameter === "") continue
    const [, name, plain, quoted] = PARAMETER.exec(parameter) ?? []
    if (name === undefined) return undefined
    if (name.toLowerCase() !== "charset" || charset !== undefined) continue
    charset = (plain ?? quoted?.replace(/\\(.)/g, "$1") ?? "").toLowerCase()
    if (!CHARSET.test(charset)) return undefined
  }
  return { type: first.toLowerCase(), charset }
}

/**
 * Returns a media type as the server stores and compares it (wire.md C.0, Media types). Its only parameter is the
 * charset, and only text types keep that.
 */
export const keptMediaType = ({ charset, type }: MediaType): string =>
  charset === undefined || !type.startsWith("text/") ? type : `${type}; charset=${charset}`
