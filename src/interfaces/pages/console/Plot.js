import { useEffect, useRef } from "preact/hooks"
import uPlot from "uplot"
import { Ways } from "../shared/Forms.js"
import { html } from "../shared/Html.js"
import { number } from "../shared/Texts.js"

/** @typedef {{ every_seconds: number, ends_at: string } & Record<string, any>} Series */

/** @param {string} name */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name)

/** Resolves a colour of the style sheet for the canvas, which does not support light-dark(). @param {string} name */
const resolved = (name) => {
  const probe = document.createElement("i")
  probe.style.color = `var(${name})`
  document.body.append(probe)
  const { color } = getComputedStyle(probe)
  probe.remove()
  return color === "" ? colour(name) : color
}

/** @typedef {"minute" | "hour" | "day"} Span */

const spans = { minute: "Minute", hour: "Hour", day: "Day" }
/** Why a time has no values yet. */
const empty = {
  minute: "The first values come in a moment.",
  hour: "Nothing yet: the server adds a value every minute after its start.",
  day: "Nothing yet: the server adds a value every five minutes after its start."
}

/**
 * The choice of the time that plots show, with a sentence if there is nothing to show yet. A server of the version
 * before has no day.
 * @param {{ value: Span, onChange: (value: Span) => void, history: Record<string, Series | undefined> | null }} props
 */
export const SpanChoice = ({ history, onChange, value }) => {
  return html`<${Ways} label="Time shown" value=${value} onChange=${onChange} ways=${
    history?.["day"] === undefined ? { minute: spans.minute, hour: spans.hour } : spans
  } />${(history?.[value]?.["sends"].length ?? 0) < 2 ? html`<p class="hint">${empty[value]}</p>` : null}`
}

/** The plots of errors and of the time that sends take. @param {{ series: Series | undefined }} props */
export const ErrorAndTimePlots = ({ series }) =>
  html`<${Plot} label="Server errors/s" series=${series} of="errors" least=${0.1} format=${(
    /** @type {number} */ value
  ) => number(Math.round(value * 1_000) / 1_000)} />
    <${Plot} label="Half of the sends take, ms" also=${{
    of: "send_p99_ms",
    label: "99 of 100 take"
  }} series=${series} of="send_p50_ms" />`

/**
 * A line chart of the last minute, hour or day.
 * @param {{ label: string, series: Series | undefined, of: string, format?: (value: number) => string, also?: { of:
 * string, label: string }, least?: number }} props `least` is the lowest value at the top of the vertical axis
 */
export const Plot = (
  { also, format = (value) => number(Math.round(value * 10) / 10), label, least = 1, of, series }
) => {
  const box = useRef(/** @type {HTMLDivElement | null} */ (null))
  const plot = useRef(/** @type {uPlot | null} */ (null))
  const values = /** @type {Array<number | null>} */ (series?.[of] ?? [])
  const others = also === undefined ? undefined : /** @type {Array<number | null>} */ (series?.[also.of] ?? [])
  const end = series === undefined ? 0 : Date.parse(series.ends_at) / 1000
  const times = values.map((_, index) => end - (values.length - 1 - index) * (series?.every_seconds ?? 1))
  const data = /** @type {uPlot.AlignedData} */ (others === undefined ? [times, values] : [times, values, others])
  const last = values.at(-1)
  const lastOther = others?.at(-1)
  const highest = values.reduce((most, value) => Math.max(most ?? 0, value ?? 0), 0)

  useEffect(() => {
    const element = box.current
    if (element === null) return
    const make = () => {
      plot.current?.destroy()
      const soft = resolved("--soft")
      const line = resolved("--line")
      const axis = {
        stroke: soft,
        grid: { stroke: line, width: 1 },
        ticks: { stroke: line, width: 1, size: 4 },
        font: "11px system-ui"
      }
      plot.current = new uPlot(
        {
          width: element.clientWidth,
          height: 130,
          legend: { show: false },
          cursor: { show: false },
          scales: { y: { range: (_self, _min, max) => [0, Math.max(least, (max ?? 0) * 1.15)] } },
          axes: [{ ...axis, size: 24, space: 70 }, {
            ...axis,
            size: 52,
            space: 28,
            values: (_self, ticks) => ticks.map((tick) => format(tick))
          }],
          series: [
            {},
            {
              stroke: resolved("--accent"),
              width: 1.5,
              points: { show: false },
              spanGaps: true,
              fill: resolved("--tint")
            },
            ...also === undefined
              ? []
              : [{ stroke: resolved("--warn"), width: 1.5, points: { show: false }, spanGaps: true }]
          ]
        },
        data,
        element
      )
    }
    make()
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: 130 }))
    observer.observe(element)
    const theme = matchMedia("(prefers-color-scheme: dark)")
    theme.addEventListener("change", make)
    const chosen = new MutationObserver(make)
    chosen.observe(document.documentElement, { attributeFilter: ["data-theme"] })
    return () => {
      observer.disconnect()
      chosen.disconnect()
      theme.removeEventListener("change", make)
      plot.current?.destroy()
      plot.current = null
    }
  }, [])
  useEffect(() => {
    plot.current?.setData(data)
  }, [series])

  const shown = (/** @type {number | null | undefined} */ value) => typeof value === "number" ? format(value) : "–"
  const now = shown(last)
  const name = also === undefined
    ? `${label}: now ${now}, at most ${format(highest ?? 0)} in this time`
    : `${label}: now ${now}, at most ${format(highest ?? 0)} in this time; ${also.label}: now ${shown(lastOther)}`
  return html`<figure class="plot">
    <figcaption><span>${label}</span><strong>${now}</strong>${
    also === undefined ? null : html`<span class="also">${also.label}</span>
      <strong class="also">${shown(lastOther)}</strong>`
  }</figcaption>
    <div ref=${box} role="img" aria-label=${name}></div>
  </figure>`
}
