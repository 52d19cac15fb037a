import { signal } from "@preact/signals"
import { ofBrowser, store, stored } from "./Stored.js"

/**
 * @import { Message } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 * @import { Signal } from "@preact/signals"
 */

/** @typedef {{ readonly notify: boolean, readonly texts: boolean, readonly sound: boolean }} Choice */

const NAME = "parley.alerts"
const LONGEST_TEXT = 140

/**
 * Which alerts the person has turned on in this browser: notifications, the texts of messages in notifications, and a
 * sound.
 * @type {Signal<Choice>}
 */
export const alerts = signal({ notify: false, texts: false, sound: false, ...stored(ofBrowser, NAME) })

/** @param {Partial<Choice>} change */
const change = (change) => {
  alerts.value = { ...alerts.peek(), ...change }
  const { notify, sound, texts } = alerts.peek()
  store(ofBrowser, NAME, notify || sound || texts ? alerts.peek() : undefined)
}

/**
 * Turns notifications on or off. Before it turns them on, asks the browser for permission. A failure has a message for
 * the person.
 * @param {boolean} on
 */
export const setNotify = async (on) => {
  if (on) {
    if (globalThis.Notification === undefined)
      throw new Error("This browser shows no notifications for this page. Most need https for them.")
    if (await Notification.requestPermission() !== "granted")
      throw new Error("The browser does not permit notifications for this page. Its settings can change that.")
  }
  change({ notify: on })
}

/** @param {boolean} texts */
export const setTexts = (texts) => change({ texts })

/** Turns the sound on or off. Plays the sound once when it is turned on. @param {boolean} on */
export const setSound = (on) => {
  change({ sound: on })
  if (on) ring()
}

/** @type {AudioContext | undefined} */
let audio
let rangAt = 0

/** Plays two short tones, at most once a second. */
const ring = () => {
  if (globalThis.AudioContext === undefined || Date.now() - rangAt < 1000) return
  rangAt = Date.now()
  audio ??= new AudioContext()
  void audio.resume()
  for (const [pitch, after] of /** @type {const} */ ([[660, 0], [880, 0.12]])) {
    const begins = audio.currentTime + after
    const tone = audio.createOscillator()
    const volume = audio.createGain()
    tone.frequency.value = pitch
    volume.gain.setValueAtTime(0.08, begins)
    volume.gain.exponentialRampToValueAtTime(0.001, begins + 0.18)
    tone.connect(volume).connect(audio.destination)
    tone.start(begins)
    tone.stop(begins + 0.2)
  }
}

/**
 * The title and the body of a notification. They contain the text of the message only if the person has turned this on.
 * @param {{ sender: string, agent: string, group: string | null, text: string | undefined, texts: boolean }} message
 */
export const wordsOf = ({ agent, group, sender, text, texts }) => ({
  title: `@${sender} wrote ${group === null ? `to @${agent}` : `in ${group}`}`,
  body: texts && text !== undefined && text !== ""
    ? text.replace(/\s+/g, " ").slice(0, LONGEST_TEXT)
    : group === null
    ? ""
    : `For @${agent}`
})

/**
 * Alerts the person to a message that is not visible on the page, in the ways that the person has chosen.
 * @param {Session} session
 * @param {Message} message
 * @param {() => void} onOpen opens the message
 */
export const alertTo = (session, message, onOpen) => {
  const { notify, sound, texts } = alerts.peek()
  const { content, conversation_id: id, sender } = message
  const here = document.visibilityState === "visible" && document.hasFocus()
  const item = session.conversations.list.peek().find((one) => one.id === id)
  if (item?.is_muted === true || !session.levels.permits(message)) return
  if (here && session.conversations.place.peek()?.id === id) return
  if (sound) ring()
  if (!notify || here) return
  const group = id.startsWith("grp_") ? item?.group_name ?? "a group" : null
  const { body, title } = wordsOf({ sender, agent: session.handle, group, text: content.text, texts })
  try {
    const notification = new Notification(title, { body, tag: id })
    notification.addEventListener("click", () => {
      focus()
      notification.close()
      onOpen()
    })
  } catch {
    // Some mobile browsers let only service workers show notifications. The page has no service worker.
  }
}
