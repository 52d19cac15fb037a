import { signal } from "@preact/signals"
import { sessions } from "./Agents.js"

/** Which dialog of the page is open: the switcher or the list of shortcuts. @type {import("@preact/signals").Signal<"switcher" | "help" | null>} */
export const overlay = signal(null)

/** Whether the keys that are pressed on an element are text. @param {EventTarget | null} target */
const isField = (target) =>
  target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))

/** @param {KeyboardEvent} event */
const pressed = (event) => {
  if (event.defaultPrevented || event.isComposing || event.altKey || sessions.peek().length === 0) return
  const isSwitch = (event.ctrlKey || event.metaKey) && !event.shiftKey && event.key.toLowerCase() === "k"
  const isHelp = event.key === "?" && !event.ctrlKey && !event.metaKey && !isField(event.target)
  if (!isSwitch && !isHelp) return
  // Browsers open their own search with Ctrl-K.
  event.preventDefault()
  if (document.querySelector("dialog[open]") === null) overlay.value = isSwitch ? "switcher" : "help"
}

/** Lets Ctrl-K open the switcher, and `?` the list of shortcuts, except while the person types into a field. */
export const beginShortcuts = () => addEventListener("keydown", pressed)
