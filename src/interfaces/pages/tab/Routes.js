/** @import { Place } from "../client/Conversations.js" */

/**
 * What a URL names: an agent, and the place that is open in the agent's pane, or null. URLs of the page are `#/ada`,
 * `#/ada/conv_…`, `#/ada/conv_…?at=12` for a message, and `#/ada/@bob` for an agent with which there is no conversation
 * yet. The part after `#` is never sent to a server.
 * @typedef {{ readonly handle: string, readonly place: Place | null }} Route
 */

/**
 * A step in the history of the tab. It stores the agent in front and the URL of each agent's open thread.
 * @typedef {{ readonly front: string, readonly places: Readonly<Record<string, string>> }} Step
 */

const SHAPE = /^#\/([a-z0-9-]{1,64})(?:\/(?:@([a-z0-9-]{1,64})|((?:conv|grp)_[\w-]{1,64})(?:\?at=(\d{1,15}))?))?$/

/**
 * The route that the part of a URL after `#` names; null if it names no route.
 * @param {string} hash
 * @returns {Route | null}
 */
export const routeOf = (hash) => {
  const [, handle, other, id, at] = SHAPE.exec(hash) ?? []
  if (handle === undefined) return null
  if (other !== undefined) return { handle, place: { id: null, handle: other } }
  if (id === undefined) return { handle, place: null }
  return { handle, place: at === undefined ? { id, handle: null } : { id, handle: null, at: Number(at) } }
}

/** The part of the URL for a route. @param {Route} route */
export const hashOf = ({ handle, place }) => {
  if (place === null) return `#/${handle}`
  if (place.id === null) return `#/${handle}/@${place.handle}`
  return `#/${handle}/${place.id}${place.at === undefined ? "" : `?at=${place.at}`}`
}

/**
 * Whether the first message to an agent has replaced the empty thread with a conversation.
 * @param {string} before
 * @param {string} after
 */
const hasBegun = (before, after) => before.includes("/@") && /\/conv_[\w-]+$/.test(after)

/**
 * Whether the history gets a new step, so that *Back* returns to the step before. Opening or closing a thread makes a
 * new step. Signing in or out does not. Bringing another agent to the front makes a new step only if the page is
 * `narrow`, because a narrow page shows only this agent.
 * @param {Step} before
 * @param {Step} after
 * @param {boolean} narrow
 */
export const isStep = (before, after, narrow) =>
  Object.entries(after.places).some(([handle, place]) => {
    const was = before.places[handle]
    return was !== undefined && was !== place && !hasBegun(was, place)
  }) || (narrow && before.front !== after.front && before.front in after.places)
