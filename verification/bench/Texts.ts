/** The texts of the messages that a load sends, in turn: 70 to 256 characters. */
export const TEXTS: ReadonlyArray<string> = [70, 96, 123, 149, 176, 203, 229, 256].map((length) =>
  "The quick brown fox jumps over the lazy dog. ".repeat(6).slice(0, length)
)
