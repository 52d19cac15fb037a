const UNITS = [["GiB", 1024 ** 3], ["MiB", 1024 ** 2], ["KiB", 1024]] as const

/**
 * Formats a limit in bytes for a sentence, in the largest unit that gives a whole number. The web pages format sizes in
 * the same units (`sizeOf` in `shared/Texts.js`).
 */
export const exactSize = (bytes: number): string => {
  const unit = UNITS.find(([, size]) => bytes >= size && bytes % size === 0)
  return unit === undefined ? `${bytes} bytes` : `${bytes / unit[1]} ${unit[0]}`
}
