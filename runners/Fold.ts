import { stripVTControlCharacters } from "node:util"

/** Folded lines are at least so wide, however narrow the terminal is. */
const LEAST = 40

const widthOf = (text: string): number => stripVTControlCharacters(text).length

/** The column at which the last column of a line begins, or its indentation if the line has no columns. */
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
 * Folds the lines of a text that are longer than a terminal is wide, between words. The rest of a line is indented as
 * far as its last column, for which two spaces or more stand before it.
 */
export const fold = (text: string, width: number): string =>
  text.split("\n").flatMap((line) => foldLine(line, Math.max(LEAST, width))).join("\n")
