import { signal } from "@preact/signals"

/**
 * The operator's session; null if nobody is signed in, undefined until this is known.
 * @type {import("@preact/signals").Signal<any>}
 */
export const session = signal(undefined)

/** @typedef {"viewer" | "moderator" | "operator"} Role */

const roles = /** @type {ReadonlyArray<Role>} */ (["viewer", "moderator", "operator"])

/** Whether the person who is signed in may do what needs this role. @param {Role} role */
export const may = (role) => roles.indexOf(session.value?.role ?? "viewer") >= roles.indexOf(role)

/** Shows its children to those who may do what needs this role. @param {{ role: Role, children?: any }} props */
export const For = ({ children, role }) => may(role) ? children : null
