import { useRef, useState } from "preact/hooks"
import { useEscape } from "../shared/Escapes.js"
import { Tick, useForm } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { Problem } from "../shared/Problem.js"
import { alerts, setNotify, setSound, setTexts } from "../tab/Alerts.js"

/**
 * A control to turn on notifications and a sound for new messages. Both are off until the person turns them on in this
 * browser.
 */
export const AlertChoice = () => {
  const [isOpen, setIsOpen] = useState(false)
  const button = useRef(/** @type {HTMLButtonElement | null} */ (null))
  const { during, problem } = useForm()
  const close = () => {
    setIsOpen(false)
    button.current?.focus()
  }
  useEscape(isOpen, close)
  const { notify, sound, texts } = alerts.value
  const isOn = notify || sound
  return html`<div class="alerts">
    <button type="button" class="icon" ref=${button} aria-expanded=${isOpen} aria-label=${`Notifications and sound: ${
    isOn ? "on" : "off"
  }`} title="Notifications and sound"
      onClick=${() => isOpen ? close() : setIsOpen(true)}>
      <svg viewBox="0 0 20 20" aria-hidden="true"><path d="M10 3a4.5 4.5 0 0 0-4.5 4.5c0 4-1.5 5.5-1.5 5.5h12s-1.5-1.5-1.5-5.5A4.5 4.5 0 0 0 10 3ZM8.3 16a1.8 1.8 0 0 0 3.4 0" />
        ${isOn ? null : html`<path d="m3.5 3.5 13 13" />`}</svg></button>
    ${
    isOpen ?
      html`<div class="alerts-panel stack" role="group" aria-label="Notifications and sound">
      <${Tick} label="Show notifications" hint="For new messages while another window or tab is in front." value=${notify}
        onTick=${(/** @type {boolean} */ on) => during(() => setNotify(on))(new Event("change"))} />
      ${notify ? html`<${Tick} label="With the text of the message" value=${texts} onTick=${setTexts} />` : null}
      <${Tick} label="Play a sound" hint="For new messages that you cannot see on this page." value=${sound} onTick=${setSound} />
      <${Problem} text=${problem} />
      <p class="hint">For this browser. Muted conversations stay silent.</p>
    </div>` :
      null
  }
  </div>`
}
