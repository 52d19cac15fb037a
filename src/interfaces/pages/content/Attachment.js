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
 * A file with its name, size and type, and with buttons to show and to save it. A picture that is not large is shown at
 * once.
 * @param {{ session: Session, id: string, tab: number }} props
 */
export const Attachment = ({ id, session: { files }, tab }) => {
  const [info, setInfo] = useState(/** @type {FileInfo | null} */ (null))
  const [url, setUrl] = useState(/** @type {string | null} */ (null))
  const [busy, setBusy] = useState(false)
  const [why, setWhy] = useState(/** @type {string | null} */ (null))
  const during = async (/** @type {() => Promise<unknown>} */ run) => {
    setBusy(true)
    setWhy(null)
    await run().catch((error) => setWhy(whyOf(error)))
    setBusy(false)
  }
  const show = () =>
    during(async () => {
      const { blob, url } = await files.fetched(id)
      if (!isPictureType(blob.type)) throw new Error("This file is not a picture. Save it to open it.")
      setUrl(url)
    })
  const keep = () =>
    during(async () => {
      const { blob, name } = await files.fetched(id)
      save(blob, name ?? info?.filename ?? "file")
    })
  useEffect(() => {
    const timer = setTimeout(() => during(async () => setInfo(await files.info(id))), PAUSE_MS)
    return () => clearTimeout(timer)
  }, [files, id])
  const isPicture = info !== null && isPictureType(info.content_type)
  useEffect(() => {
    if (isPicture && info.size <= LARGEST_SHOWN) void show()
  }, [isPicture])

  return html`<div class="file">
    <span class="file-name"><bdi>${info?.filename ?? "File"}</bdi>${" "}
      ${info === null ? null : html`<small><bdi>${info.content_type}</bdi>, ${sizeOf(info.size)}</small>`}</span>
    <span class="file-actions">
      ${
    !isPicture ? null : url === null
      ? html`<button type="button" class="quiet" tabindex=${tab} disabled=${busy} onClick=${show}>Show</button>`
      : html`<button type="button" class="quiet" tabindex=${tab} onClick=${() => setUrl(null)}>Hide</button>`
  }
      <button type="button" class="quiet" tabindex=${tab} disabled=${busy} onClick=${keep}>Save</button>
    </span>
    ${why === null ? null : html`<p class="problem" role="alert">${why}</p>`}
    ${
    url === null
      ? null
      : html`<span class="file-picture"><img src=${url} alt=${`Picture ${info?.filename ?? ""}`} /></span>`
  }
  </div>`
}
