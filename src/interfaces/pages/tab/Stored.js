/**
 * The value that a browser stores as JSON under a name; undefined if there is none or the browser lets the page read
 * nothing.
 * @param {() => Storage} storage
 * @param {string} name
 * @returns {any}
 */
export const stored = (storage, name) => {
  try {
    return JSON.parse(storage().getItem(name) ?? "null") ?? undefined
  } catch {
    return undefined
  }
}

/**
 * Stores a value as JSON, or removes it if it is undefined. Returns false if the browser refuses.
 * @param {() => Storage} storage
 * @param {string} name
 * @param {unknown} value
 */
export const store = (storage, name, value) => {
  try {
    if (value === undefined) storage().removeItem(name)
    else storage().setItem(name, JSON.stringify(value))
    return true
  } catch {
    return false
  }
}

/** What the browser keeps for this tab, also over a reload. */
export const ofTab = () => sessionStorage
/** What the browser keeps for all tabs, until it is removed. */
export const ofBrowser = () => localStorage
