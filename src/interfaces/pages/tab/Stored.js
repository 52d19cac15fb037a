/**
 * The value that the browser stores as JSON under a name; undefined if there is none or if the browser does not let the
 * page read it.
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
 * Stores a value as JSON under a name. Removes the stored value if the value is undefined. Returns false if the browser
 * refuses.
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

/** The storage of this tab. It survives a reload. */
export const ofTab = () => sessionStorage
/** The storage that all tabs share. It is kept until it is removed. */
export const ofBrowser = () => localStorage
