import { useLayoutEffect, useReducer, useRef } from "preact/hooks"
import { rowAt } from "../client/Rows.js"
import { html } from "../shared/Html.js"

/** The assumed height of a row that has not been drawn yet, in pixels. */
const GUESS = 62
/** How far above and below the visible part rows are drawn, in pixels. */
const BEYOND = 600
/** The distance from the top at which the list requests older rows, in pixels. */
const NEAR_TOP = 800
/** The largest distance from the end at which the list counts as being at its end, in pixels. */
const NEAR_END = 40
/** How much of a row must be on the screen for the row to count as seen, in pixels, unless the row is smaller. */
const ENOUGH = 48

/**
 * The indexes of the first and the last row of which enough is on the screen.
 * @param {Float64Array} offsets
 * @param {number} top
 * @param {number} height
 * @returns {readonly [first: number, last: number]}
 */
const rowsIn = (offsets, top, height) => {
  const enough = (/** @type {number} */ index) =>
    Math.min(ENOUGH, (offsets[index + 1] ?? 0) - (offsets[index] ?? 0)) - 1
  let first = rowAt(offsets, top)
  if ((offsets[first + 1] ?? 0) - top < enough(first)) first++
  let last = rowAt(offsets, top + height)
  if (top + height - (offsets[last] ?? 0) < enough(last)) last--
  return [first, last]
}

/**
 * `reveal` makes a row visible. With `middle`, it moves the row into the upper half of the visible part. It focuses the
 * row, unless `focus` is false.
 * `focus` moves the focus to the list.
 * @typedef {{ toEnd: () => void, focus: () => void, reveal: (key: string, options?: { middle?: boolean, focus?: boolean }) => void }} Handle
 */

/**
 * A list of rows of any height. It draws only the rows in or near the visible part. When rows are added before the
 * visible rows, the visible rows do not move. If the list is at its end when rows are added there, it scrolls to the
 * new end.
 *
 * @param {object} props
 * @param {ReadonlyArray<string>} props.keys one key for each row
 * @param {(index: number) => any} props.row an element whose `data-key` is the row's key
 * @param {string} props.label
 * @param {() => void} props.onTop called near the top, when rows before the first one may be loaded
 * @param {boolean} props.more whether rows after the last one can be loaded. If so, the list never counts as being at
 * its end.
 * @param {() => void} props.onBottom called near the bottom, when rows after the last one may be loaded
 * @param {(atEnd: boolean) => void} props.onEnd called after scrolling, with whether the end is visible
 * @param {(event: KeyboardEvent) => void} [props.onKey]
 * @param {(first: number, last: number) => void} props.onView called after drawing, with the indexes of the first and
 * the last row on the screen
 * @param {{ current: Handle | null }} props.handle
 */
export const VirtualList = ({ handle, keys, label, more, onBottom, onEnd, onKey, onTop, onView, row }) => {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null))
  const list = useRef(/** @type {HTMLDivElement | null} */ (null))
  const heights = useRef(/** @type {Map<string, number>} */ (new Map()))
  const place = useRef(
    /** @type {{ end: boolean, key: string | undefined, within: number, reveal: string | undefined }} */ ({
      end: true,
      key: undefined,
      within: 0,
      reveal: undefined
    })
  )
  const view = useRef({ top: 0, height: 800, width: 0 })
  const [, redraw] = useReducer((/** @type {number} */ count) => count + 1, 0)

  const offsets = new Float64Array(keys.length + 1)
  for (let index = 0; index < keys.length; index++) {
    offsets[index + 1] = (offsets[index] ?? 0) + (heights.current.get(keys[index] ?? "") ?? GUESS)
  }
  const total = offsets[keys.length] ?? 0
  const { height, top } = view.current
  // `at` is the scroll position after drawing. It differs from the current position if rows were added before the
  // visible ones.
  const anchor = place.current.end || place.current.key === undefined ? -1 : keys.indexOf(place.current.key)
  const at = place.current.end
    ? Math.max(0, total - height)
    : anchor === -1
    ? top
    : Math.max(0, (offsets[anchor] ?? 0) + place.current.within)
  const first = rowAt(offsets, at - BEYOND)
  const last = Math.min(keys.length - 1, rowAt(offsets, at + height + BEYOND))

  useLayoutEffect(() => {
    const element = box.current
    if (element === null || list.current === null) return
    // The pane is not shown, so its rows have no height and nobody sees them.
    if (element.clientHeight === 0) return
    let changed = view.current.height !== element.clientHeight
    view.current.height = element.clientHeight
    if (view.current.width !== element.clientWidth) {
      view.current.width = element.clientWidth
      heights.current.clear()
      changed = true
    }
    for (const child of list.current.children) {
      const key = /** @type {HTMLElement} */ (child).dataset["key"]
      if (key === undefined) continue
      const { height } = child.getBoundingClientRect()
      if (Math.abs((heights.current.get(key) ?? -1) - height) > 0.5) {
        heights.current.set(key, height)
        changed = true
      }
    }
    if (changed) return redraw(0)
    const goal = place.current.end ? element.scrollHeight - element.clientHeight : at
    if (Math.abs(element.scrollTop - goal) > 1) element.scrollTop = goal
    view.current.top = element.scrollTop
    if (!place.current.end && !more && element.scrollHeight - element.scrollTop - element.clientHeight <= 1) {
      place.current.end = true
      onEnd(true)
    }
    onView(...rowsIn(offsets, element.scrollTop, element.clientHeight))
    if (place.current.reveal !== undefined) {
      const key = place.current.reveal
      place.current.reveal = undefined
      const found = [...list.current.children].find((child) =>
        /** @type {HTMLElement} */ (child).dataset["key"] === key
      )
      if (found instanceof HTMLElement) found.focus({ preventScroll: true })
    }
  })

  useLayoutEffect(() => {
    const element = box.current
    if (element === null) return
    const observer = new ResizeObserver(() => redraw(0))
    observer.observe(element)
    if (list.current !== null) observer.observe(list.current)
    return () => observer.disconnect()
  }, [])

  const onScroll = () => {
    const element = box.current
    if (element === null) return
    const top = element.scrollTop
    const below = element.scrollHeight - top - element.clientHeight
    const end = !more && below <= NEAR_END
    const index = rowAt(offsets, top)
    const moved = Math.abs(top - view.current.top) > 1
    // A row that has grown, such as a picture that has loaded, is no move away from the end.
    if (!moved && (place.current.end || !end)) return
    view.current.top = top
    place.current = { end, key: keys[index], within: top - (offsets[index] ?? 0), reveal: undefined }
    onEnd(end)
    if (top < NEAR_TOP) onTop()
    if (below < NEAR_TOP) onBottom()
    redraw(0)
  }

  handle.current = {
    focus: () => {
      const row = list.current?.querySelector("[tabindex='0']")
      if (row instanceof HTMLElement) row.focus({ preventScroll: true })
    },
    toEnd: () => {
      place.current = { ...place.current, end: true }
      onEnd(true)
      redraw(0)
    },
    reveal: (key, { focus = true, middle = false } = {}) => {
      const index = keys.indexOf(key)
      if (index === -1) return
      const begins = offsets[index] ?? 0
      const ends = offsets[index + 1] ?? 0
      const seen = view.current
      if (middle) {
        place.current = { end: false, key, within: -seen.height / 3, reveal: focus ? key : undefined }
        onEnd(false)
      } else if (begins < seen.top || ends > seen.top + seen.height) {
        const top = begins < seen.top ? begins : Math.max(0, ends - seen.height)
        const above = rowAt(offsets, top)
        place.current = { end: false, key: keys[above], within: top - (offsets[above] ?? 0), reveal: key }
      } else place.current = { ...place.current, reveal: key }
      redraw(0)
    }
  }

  const rows = []
  for (let index = first; index <= last; index++) rows.push(row(index))
  return html`<div class="scroller" ref=${box} onScroll=${onScroll} onKeyDown=${onKey}>
    <div ...${
    keys.length === 0 ? {} : { "role": "feed", "aria-label": label, "aria-busy": "false" }
  } class="feed" ref=${list}
      style=${{
    paddingTop: `${offsets[first] ?? 0}px`,
    paddingBottom: `${Math.max(0, total - (offsets[last + 1] ?? total))}px`
  }}>
      ${rows}
    </div>
  </div>`
}
