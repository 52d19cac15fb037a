import { batch, effect, signal } from "@preact/signals"
import { front, sessions, show, waiting } from "./Agents.js"
import { hashOf, isStep, routeOf } from "./Routes.js"

/**
 * @import { Signal } from "@preact/signals"
 * @import { Session } from "../client/Session.js"
 * @import { Route, Step } from "./Routes.js"
 */

/** The route that the URL names, while the agent of this route is not signed in. @type {Signal<Route | null>} */
export const awaited = signal(null)

const narrow = () => matchMedia("(max-width: 47rem)").matches

/** @returns {Step | null} */
const kept = () => history.state?.parley ?? null

/** The state of the tab, as the current step of the tab's history. @type {Step} */
let current = { front: "", places: {} }
/** The agents whose places were restored when they signed in. @type {WeakSet<Session>} */
const restored = new WeakSet()

/** @param {Session} session */
const placeOf = (session) => hashOf({ handle: session.handle, place: session.conversations.place.value })

/** Opens the place that a URL names in the agent's pane. @param {Session} session @param {string | undefined} hash */
const restore = (session, hash) => {
  const route = hash === undefined ? null : routeOf(hash)
  if (route !== null && hash !== placeOf(session)) session.go(route.place)
}

/** Whether the page is opening the place that the URL names. Meanwhile it adds no step to the history. */
let arriving = false

/**
 * Opens the place that the URL names. In the panes of the other agents, opens the places that the step of the history
 * stores.
 */
const arrive = () => {
  const route = routeOf(location.hash)
  if (route === null) return
  const step = kept()
  const wanted = sessions.peek().find(({ handle }) => handle === route.handle)
  awaited.value = wanted === undefined ? route : null
  arriving = true
  batch(() => {
    for (const session of sessions.peek())
      restore(session, session === wanted ? location.hash : step?.places[session.handle])
    if (wanted !== undefined) show(wanted)
  })
  arriving = false
}

/**
 * Whether the thread was closed because its conversation is gone. *Back* must not return to it.
 * @param {Session} session
 * @param {Step} before
 */
const isGone = (session, before) => {
  const id = routeOf(before.places[session.handle] ?? "")?.place?.id ?? null
  return id !== null && session.conversations.place.peek() === null && !session.conversations.has(id)
}

/** Updates the URL and the history to the state of the tab. */
const follow = () => {
  const all = sessions.value
  const session = front.value
  if (session === null) {
    // The last agent has signed out.
    if (current.front !== "") history.replaceState(null, "", location.pathname)
    current = { front: "", places: {} }
    return
  }
  /** @type {Step} */
  const next = { front: session.handle, places: Object.fromEntries(all.map((one) => [one.handle, placeOf(one)])) }
  const before = current
  current = next
  const isNext = !arriving && waiting.value === 0 && isStep(before, next, narrow()) &&
    !all.some((one) => isGone(one, before))
  if (awaited.peek() !== null && !isNext) return
  awaited.value = null
  const url = next.places[next.front] ?? ""
  if (isNext) history.pushState({ parley: next }, "", url)
  else history.replaceState({ parley: next }, "", url)
}

/**
 * Opens the place that the URL names when the agent of the URL signs in. After that, keeps the URL in step with the
 * state of the tab.
 */
export const beginNavigation = () => {
  const atLoad = kept()
  awaited.value = routeOf(location.hash)
  addEventListener("popstate", arrive)
  effect(() => {
    const wanted = awaited.peek()
    for (const session of sessions.value) {
      if (restored.has(session)) continue
      restored.add(session)
      restore(session, wanted?.handle === session.handle ? hashOf(wanted) : atLoad?.places[session.handle])
    }
    const first = sessions.peek().find(({ handle }) => handle === wanted?.handle)
    if (first !== undefined) {
      front.value = first
      // Each agent that signs in comes to the front. The wanted agent therefore stays wanted until all have signed in.
      if (waiting.value === 0) awaited.value = null
    }
    follow()
  })
}
