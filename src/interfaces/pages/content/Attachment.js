import { useEffect, useState } from "preact/hooks"
import { Refused, textOf } from "../client/Api.js"
import { isPicture as isPictureType, save } from "../client/Files.js"
import { html } from "../shared/Html.js"
import { sizeOf } from "../shared/Texts.js"

/**
 * @import { FileInfo } from "../client/Wire.ts"
 * @import { Session } from "../client/Session.js"
 */

/** The largest picture that is shown without a click, in bytes. */
const LARGEST_SHOWN = 5_242_880
/** The largest height of a picture, in rem. While its size is unknown, its place has this height (style.css). */
const HIGHEST_REM = 18
/**
 * How long a row waits before it requests the description of its file, in milliseconds. So rows that are scrolled past
 * request nothing.
 */
const PAUSE_MS = 150

/** @param {unknown} error */
const whyOf = (error) =>
  error instanceof Refused && error.status === 404
    ? "This file does not exist, or this agent may not open it."
    : textOf(error)

/**
 * The style of the place of a picture, so that the row has its final height before the picture is drawn.
 * @param {{ width: number, height: number } | undefined} size
 */
const placeOf = (size) =>
  size === undefined || size.height === 0
    ? {}
    : {
      height: "auto",
      width: `min(${size.width}px, ${(HIGHEST_REM * size.width) / size.height}rem)`,
      aspectRatio: `${size.width} / ${size.height}`
    }

/**
 * A file with its name, size and type, and with buttons to show and to save it. A picture that is not large is shown at
 * once.
 * @param {{ session: Session, id: string, tab: number }} props
 */
export const Attachment = ({ id, session: { files, picture }, tab }) => {
  const [info, setInfo] = useState(/** @type {FileInfo | null} */ (files.described.get(id) ?? null))
  const [url, setUrl] = useState(/** @type {string | null} */ (null))
  const [isClosed, setClosed] = useState(false)
  const [busy, setBusy] = useState(false)
  const [why, setWhy] = useState(/** @type {string | null} */ (null))
  const during = async (/** @type {() => Promise<unknown>} */ run) => {
    setBusy(true)
    setWhy(null)
    await run().catch((error) => setWhy(whyOf(error)))
    setBusy(false)
  }
  const show = () => during(async () => setUrl(await files.picture(id)))
  const keep = () =>
    during(async () => {
      const { blob, name } = await files.fetched(id)
      save(blob, name ?? info?.filename ?? "file")
    })
  useEffect(() => {
    if (info !== null) return
    const timer = setTimeout(() => during(async () => setInfo(await files.info(id))), PAUSE_MS)
    return () => clearTimeout(timer)
  }, [files, id])
  const name = info?.filename ?? ""
  const isPicture = info !== null && isPictureType(info.content_type)
  const isShownAtOnce = isPicture && info.size <= LARGEST_SHOWN
  /** Whether the picture is not there yet, and its place is kept free. */
  const isAwaited = isShownAtOnce && url === null && why === null && !isClosed
  const size = files.sizes.get(id)
  useEffect(() => {
    if (isShownAtOnce) void show()
  }, [isPicture])

  return html`<div class="file">
    <span class="file-name"><bdi>${info?.filename ?? "File"}</bdi>${" "}
      ${info === null ? null : html`<small><bdi>${info.content_type}</bdi>, ${sizeOf(info.size)}</small>`}</span>
    <span class="file-actions">
      ${
    !isPicture ? null : url === null
      ? html`<button type="button" class="quiet" tabindex=${tab} disabled=${busy} onClick=${show}>Show</button>`
      : html`<button type="button" class="quiet" tabindex=${tab} onClick=${() => {
        setUrl(null)
        setClosed(true)
      }}>Hide</button>`
  }
      <button type="button" class="quiet" tabindex=${tab} disabled=${busy} onClick=${keep}>Save</button>
    </span>
    ${why === null ? null : html`<p class="problem" role="alert">${why}</p>`}
    ${
    url === null && !isAwaited ?
      null :
      html`<span class="file-picture"><span style=${placeOf(size)}>${
        url === null
          ? null
          : html`<button type="button" class="picture" tabindex=${tab} title="Enlarge" onClick=${() =>
            picture.value = { url, name }}><img src=${url} alt=${`Picture ${name}`} /></button>`
      }</span></span>`
  }
  </div>`
}
