import { signal } from "@preact/signals"
import { html } from "./Html.js"

const KEY = "parley.theme"

/** @returns {"auto" | "dark" | "light"} */
const stored = () => {
  try {
    const theme = localStorage.getItem(KEY)
    return theme === "dark" || theme === "light" ? theme : "auto"
  } catch {
    return "auto"
  }
}

/** The chosen theme; `auto` follows the system. */
const theme = signal(stored())

/** @param {"auto" | "dark" | "light"} next */
const choose = (next) => {
  theme.value = next
  if (next === "auto") delete document.documentElement.dataset["theme"]
  else document.documentElement.dataset["theme"] = next
  try {
    if (next === "auto") localStorage.removeItem(KEY)
    else localStorage.setItem(KEY, next)
  } catch {
    // The browser stores nothing for this site. The theme still applies to this tab.
  }
}

/** A control to choose the theme. */
export const ThemeChoice = () =>
  html`<label class="theme"><span class="unseen">Colours</span>
    <select value=${theme.value} onChange=${(/** @type {any} */ event) => choose(event.currentTarget.value)}>
      <option value="auto">Auto</option>
      <option value="light">Light</option>
      <option value="dark">Dark</option>
    </select></label>`
