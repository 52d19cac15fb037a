import { stripVTControlCharacters } from "node:util"

/** How many columns folded lines may always use, even if the terminal is narrower. */
const LEAST = 40

const widthOf = (text: string): number => stripVTControlCharacters(text).length

/** The position at which the last column of a line begins, or the line's indentation if it has no columns. */
const hangingOf = (plain: string, width: number): number => {
  const column = /^(?:.*\S {2,}| *)/.exec(plain)?.[0].length ?? 0
  return column <= width / 2 ? column : (/^ */.exec(plain)?.[0].length ?? 0) + 4
}

const foldLine = (line: string, width: number): ReadonlyArray<string> => {
  if (widthOf(line) <= width) return [line]
  const hanging = hangingOf(stripVTControlCharacters(line), width)
  const [first = "", ...words] = line.split(/(?<=\S) (?=\S)/)
  const lines = [first]
  for (const word of words) {
    const longer = `${lines.at(-1)} ${word}`
    if (widthOf(longer) <= width) lines[lines.length - 1] = longer
    else lines.push(" ".repeat(hanging) + word)
  }
  return lines
}

/**
 * Folds lines that are wider than the terminal, between words. Continuation lines are indented to the last column of
 * the folded line. A column begins after two or more spaces.
 */
export const fold = (text: string, width: number): string =>
  text.split("\n").flatMap((line) => foldLine(line, Math.max(LEAST, width))).join("\n")
