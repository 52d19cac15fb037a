const day = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long", year: "numeric" })
const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" })
const exact = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" })
const full = new Intl.DateTimeFormat(undefined, { dateStyle: "full", timeStyle: "medium" })
const short = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" })
const whole = new Intl.NumberFormat()

/** @param {string | number | Date} at */
export const dayOf = (at) => day.format(new Date(at))
/** @param {string | number | Date} at */
export const clockOf = (at) => clock.format(new Date(at))
/** @param {string | number | Date | null | undefined} at */
export const exactly = (at) => at === null || at === undefined ? "–" : exact.format(new Date(at))
/** The whole date with the day of the week, and the time. @param {string | number | Date} at */
export const fully = (at) => full.format(new Date(at))

/**
 * The time of day if `at` is today, otherwise the date.
 * @param {string} at
 */
export const briefly = (at) => {
  const then = new Date(at)
  return then.toDateString() === new Date().toDateString() ? clock.format(then) : short.format(then)
}

/** @param {number} count */
export const number = (count) => whole.format(count)

/**
 * @param {number} count
 * @param {string} one
 * @param {string} [many]
 */
export const counted = (count, one, many = `${one}s`) => `${whole.format(count)} ${count === 1 ? one : many}`

const units = ["B", "KiB", "MiB", "GiB", "TiB"]

/**
 * A size as all pages show it: rounded, in the same units as the limits. 1,024 of a unit are 1 of the next unit.
 * @param {number} bytes
 */
export const sizeOf = (bytes) => {
  let unit = 0
  let rest = bytes
  const rounded = () => rest >= 100 || unit === 0 ? Math.round(rest) : Math.round(rest * 10) / 10
  while (rounded() >= 1024 && unit < units.length - 1) {
    rest /= 1024
    unit++
  }
  return `${rounded()} ${units[unit]}`
}

/** @param {number} seconds */
export const spanOf = (seconds) => {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`
  if (seconds < 129_600) return `${Math.round(seconds / 3600)} h`
  return `${Math.round(seconds / 86_400)} days`
}

/**
 * The name of a program that is connected with OAuth. It contains the host that describes the program. Without such a
 * host, it says that the program chose the name itself, because nobody has checked this name.
 * @param {{ client_name: string | null, client_host: string | null }} connection
 */
export const programOf = ({ client_host, client_name }) => {
  const name = client_name?.trim() ?? ""
  if (client_host !== null) return name === "" ? client_host : `${name} (${client_host})`
  return name === "" ? "A program without a name" : `A program that calls itself “${name}”`
}

/** What a program that is connected with OAuth may do. @param {ReadonlyArray<string>} scopes */
export const rightsOf = (scopes) => scopes.includes("agent:act") ? "may read and act" : "may only read"
