import { ofBrowser, ofTab, store, stored } from "../tab/Stored.js"

const NAME = "parley.keys"

/** Throws an error for the person if the text cannot be a key. @param {string} text */
export const assertKey = (text) => {
  if (!/^ac_[\w-]{43}$/.test(text)) throw new Error("This is not a key: keys begin with ac_ and have 46 characters.")
}

export const UNKNOWN_KEY = "The server does not know this key. It may have been replaced."

/** @typedef {{ readonly key: string, readonly watching: boolean }} Kept */

/** @param {() => Storage} storage @returns {ReadonlyArray<Kept>} */
const keysIn = (storage) => {
  const list = stored(storage, NAME)
  return Array.isArray(list) ? list.filter((one) => typeof one?.key === "string") : []
}

/** @param {() => Storage} storage @param {ReadonlyArray<Kept>} list */
const write = (storage, list) => store(storage, NAME, list.length === 0 ? undefined : list)

/** The keys that are stored in this browser at the person's request. */
export const keptInBrowser = () => keysIn(ofBrowser)

/**
 * The keys with which this tab has signed in, in that order, followed by the keys that are stored in this browser at
 * the person's request.
 * @returns {ReadonlyArray<Kept>}
 */
export const kept = () => {
  const own = keysIn(ofTab)
  return [...own, ...keptInBrowser().filter(({ key }) => !own.some((one) => one.key === key))]
}

/** @param {() => Storage} storage @param {Kept} entry */
const add = (storage, entry) => {
  const list = keysIn(storage)
  return write(
    storage,
    list.some(({ key }) => key === entry.key)
      ? list.map((one) => one.key === entry.key ? entry : one)
      : [...list, entry]
  )
}

/** Keeps a key for this tab, so that a reload does not sign out. @param {string} key @param {boolean} watching */
export const keepInTab = (key, watching) => add(ofTab, { key, watching })

/**
 * Stores a key in this browser. Returns false if the browser refuses to store it.
 * @param {string} key
 * @param {boolean} watching
 */
export const keepInBrowser = (key, watching) => add(ofBrowser, { key, watching })

/**
 * Replaces a former key with the new key in this tab and in this browser.
 * @param {string} former
 * @param {string} key
 */
export const replace = (former, key) => {
  for (const storage of [ofTab, ofBrowser])
    write(
      storage,
      keysIn(storage).map((one) => one.key === former ? { ...one, key } : one)
    )
}

/** Removes a key from this tab and from this browser. @param {string} key */
export const forget = (key) => {
  for (const storage of [ofTab, ofBrowser]) write(storage, keysIn(storage).filter((one) => one.key !== key))
}
