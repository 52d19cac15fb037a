import { batch, computed, signal } from "@preact/signals"
import { Refused } from "../client/Api.js"
import { assertKey, forget, keepInBrowser, keepInTab, kept, UNKNOWN_KEY } from "../client/Keys.js"
import { Session } from "../client/Session.js"
import { alertTo } from "./Alerts.js"

/** @import { Signal } from "@preact/signals" */

/** The signed-in agents, in the order in which they signed in. @type {Signal<ReadonlyArray<Session>>} */
export const sessions = signal([])
/** The agents that are shown side by side. @type {Signal<ReadonlySet<Session>>} */
export const shown = signal(new Set())
/** The agent in front. A narrow page shows only this agent. @type {Signal<Session | null>} */
export const front = signal(null)
/** Whether the dialog *Add an agent* is open. */
export const adding = signal(false)
/** With how many stored keys the page is still signing in. */
export const waiting = signal(0)
/** How many unread messages all agents have. */
export const unread = computed(() => sessions.value.reduce((sum, one) => sum + one.unread.value, 0))

/** @param {Session} session */
export const show = (session) =>
  batch(() => {
    shown.value = new Set([...shown.peek(), session])
    front.value = session
  })

/** @param {Session} session */
export const closeView = (session) =>
  batch(() => {
    shown.value = new Set([...shown.peek()].filter((one) => one !== session))
    if (front.peek() === session) front.value = [...shown.peek()][0] ?? null
  })

/**
 * Sorts the agents in the order of their stored keys. After a reload, all agents sign in at once and so in any order.
 * @param {ReadonlyArray<Session>} all
 */
const inOrder = (all) => {
  const keys = kept().map(({ key }) => key)
  return all.toSorted((a, b) => keys.indexOf(a.key) - keys.indexOf(b.key))
}

/** @param {string} key @param {{ keep: boolean, watching: boolean }} options */
export const signIn = async (key, { keep, watching }) => {
  assertKey(key)
  const there = sessions.peek().find((one) => one.key === key)
  if (there !== undefined) return show(there)
  const session = new Session(key, watching, (message) =>
    alertTo(session, message, () => {
      show(session)
      session.open(message.conversation_id)
    }))
  try {
    await session.begin()
  } catch (error) {
    session.end()
    if (error instanceof Refused && error.status === 401) throw new Error(UNKNOWN_KEY, { cause: error })
    throw error
  }
  if (!keepInTab(key, watching))
    session.notices.note("This browser cannot keep the key: a reload signs this agent out.")
  if (keep && !keepInBrowser(key, watching))
    session.notices.note("This browser cannot store the key: it is gone when you close this tab.")
  batch(() => {
    sessions.value = inOrder([...sessions.peek(), session])
    adding.value = false
    show(session)
  })
}

/** @param {Session} session */
export const signOut = (session) =>
  batch(() => {
    session.signOut()
    forget(session.key)
    sessions.value = sessions.peek().filter((one) => one !== session)
    closeView(session)
    const [next] = sessions.peek()
    if (shown.peek().size === 0 && next !== undefined) show(next)
  })

/**
 * Signs in with a stored key. Retries while the server does not respond, and removes a key that the server refuses.
 * @param {string} key
 * @param {boolean} watching
 */
const resume = async (key, watching) => {
  waiting.value++
  for (let attempt = 0;; attempt++) {
    try {
      await signIn(key, { keep: false, watching })
      break
    } catch (error) {
      if (!(error instanceof Refused) || !error.passing) {
        forget(key)
        break
      }
      await new Promise((resolve) =>
        setTimeout(resolve, Math.min(15_000, 500 * 2 ** attempt) * (0.5 + Math.random() / 2))
      )
    }
  }
  waiting.value--
}

/** Signs in with the keys of this tab and of this browser. */
export const resumeAll = () => {
  for (const { key, watching } of kept()) void resume(key, watching)
}
