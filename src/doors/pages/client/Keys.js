const NAME = "parley.keys"

/** Fails with words for a person if this cannot be a key. @param {string} text */
export const assertKey = (text) => {
  if (!/^ac_[\w-]{43}$/.test(text)) throw new Error("This is not a key: keys begin with ac_ and have 46 characters.")
}

export const UNKNOWN_KEY = "The server does not know this key. It may have been replaced."

/** @typedef {{ readonly key: string, readonly watching: boolean }} Kept */

/** The keys that are stored in this browser at the person's request. @returns {ReadonlyArray<Kept>} */
export const kept = () => {
  try {
    const list = JSON.parse(localStorage.getItem(NAME) ?? "[]")
    return Array.isArray(list) ? list.filter(({ key }) => typeof key === "string") : []
  } catch {
    return []
  }
}

/** @param {ReadonlyArray<Kept>} list */
const write = (list) => {
  try {
    if (list.length === 0) localStorage.removeItem(NAME)
    else localStorage.setItem(NAME, JSON.stringify(list))
    return true
  } catch {
    return false
  }
}

/** Stores a key in this browser. Returns false if the browser refuses to store it. @param {string} key @param {boolean} watching */
export const keep = (key, watching) => write([...kept().filter((one) => one.key !== key), { key, watching }])

/** Stores a new key in the place of the former key, if that was stored. @param {string} former @param {string} key */
export const replace = (former, key) => write(kept().map((one) => one.key === former ? { ...one, key } : one))

/** @param {string} key */
export const forget = (key) => write(kept().filter((one) => one.key !== key))
