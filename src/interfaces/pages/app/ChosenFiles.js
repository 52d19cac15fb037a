import { useEffect, useState } from "preact/hooks"
import { isPicture, problemOf } from "../client/Files.js"
import { html } from "../shared/Html.js"
import { counted, sizeOf } from "../shared/Texts.js"

/**
 * @import { Progress } from "../client/Uploads.js"
 */

/** The most files that a person can send at once. Each file is one message. */
export const MOST_FILES = 10
/** The largest picture of which a thumbnail is shown, in bytes. */
const LARGEST_THUMBNAIL = 26_214_400

/** @param {{ file: File }} props */
const Thumbnail = ({ file }) => {
  const [url, setUrl] = useState(/** @type {string | null} */ (null))
  useEffect(() => {
    const made = URL.createObjectURL(file)
    setUrl(made)
    return () => URL.revokeObjectURL(made)
  }, [file])
  return url === null ? null : html`<img src=${url} alt="" onError=${() => setUrl(null)} />`
}

/**
 * @param {{ file: File, busy: boolean, sent: number | undefined, onRemove: () => void }} props `sent` are the bytes that
 * have been sent; undefined if the file is not being uploaded
 */
const Chosen = ({ busy, file, onRemove, sent }) => {
  const problem = problemOf(file)
  return html`<li class="chosen-file">
    ${
    isPicture(file.type) && file.size <= LARGEST_THUMBNAIL
      ? html`<span class="thumbnail"><${Thumbnail} file=${file} /></span>`
      : html`<span class="thumbnail" aria-hidden="true"><svg viewBox="0 0 20 20"><path d="M5 2.5h6.5L15 6v11.5H5zM11.5 2.5V6H15" /></svg></span>`
  }
    <span class="chosen-name"><bdi class="ellipsis" title=${file.name}>${file.name}</bdi> <small>${
    sizeOf(file.size)
  }</small>
      ${problem === null ? null : html`<small class="why" role="alert">${problem}</small>`}
      ${
    sent === undefined
      ? null
      : html`<progress max=${file.size} value=${sent} aria-label=${`Upload of ${file.name}`}></progress>`
  }</span>
    <button type="button" class="quiet" disabled=${busy} onClick=${onRemove} aria-label=${`Do not send ${file.name}`}>✕</button>
  </li>`
}

/**
 * The files that are sent with the next message, in their order. Each can be removed before it is sent.
 * @param {object} props
 * @param {ReadonlyArray<File>} props.files
 * @param {Progress | undefined} props.progress
 * @param {boolean} props.isNew whether the conversation does not exist yet
 * @param {boolean} props.hasText whether a text is sent with the files
 * @param {(file: File) => void} props.onRemove
 */
export const ChosenFiles = ({ files, hasText, isNew, onRemove, progress }) => {
  const running = progress?.why === null ? progress : undefined
  const several = files.length > 1
  const refused = files.filter((file) => problemOf(file) !== null).length
  return html`<span class="unseen" role="status">${
    running === undefined ? "" : `Uploading file ${running.index + 1} of ${files.length}`
  }</span>
    ${
    files.length === 0 ?
      null :
      html`<ul class="chosen-files" aria-label="Files to send">${
        files.map((file, index) =>
          html`<${Chosen} key=${`${file.name} ${file.size} ${file.lastModified} ${index}`} file=${file} busy=${
            running !== undefined
          }
        sent=${
            running === undefined || index > running.index
              ? undefined
              : index < running.index
              ? file.size
              : running.sent
          }
        onRemove=${() => onRemove(file)} />`
        )
      }</ul>`
  }
    ${
    !several ? null : refused > 0
      ? html`<p class="hint" role="status">Remove the ${counted(refused, "file")} that cannot be sent.</p>`
      : isNew
      ? html`<p class="hint" role="status">Each file is a message of its own. You can send only one message before the agent replies. Keep one file here, and send the others later.</p>`
      : html`<p class="hint">Sent as ${files.length} messages, in this order.${
        hasText ? " The text is sent with the first file." : ""
      }</p>`
  }
    ${
    progress === undefined || progress.why === null ? null : html`<p class="problem" role="alert">${progress.why}</p>`
  }`
}

/** @param {DataTransfer | null} data */
const hasFiles = (data) => data?.types.includes("Files") === true

/**
 * Takes files that are dropped anywhere on the conversation. Files that are dropped elsewhere on the page are ignored.
 * Without this, the browser would leave the page and open the file.
 * @param {{ current: HTMLElement | null }} inside an element of the conversation
 * @param {(files: FileList) => void} take
 * @returns {boolean} whether files are being dragged over the conversation
 */
export const useDrop = (inside, take) => {
  const [over, setOver] = useState(false)
  useEffect(() => {
    const area = inside.current?.closest(".thread")
    const isIn = (/** @type {Event} */ event) => event.target instanceof Node && area?.contains(event.target) === true
    const drag = (/** @type {DragEvent} */ event) => {
      if (!hasFiles(event.dataTransfer)) return
      event.preventDefault()
      if (event.dataTransfer !== null && !isIn(event)) event.dataTransfer.dropEffect = "none"
      setOver(isIn(event))
    }
    const leave = (/** @type {DragEvent} */ event) => {
      if (event.relatedTarget === null) setOver(false)
    }
    const drop = (/** @type {DragEvent} */ event) => {
      setOver(false)
      if (event.dataTransfer === null || !hasFiles(event.dataTransfer)) return
      event.preventDefault()
      if (isIn(event)) take(event.dataTransfer.files)
    }
    addEventListener("dragover", drag)
    addEventListener("dragleave", leave)
    addEventListener("drop", drop)
    return () => {
      removeEventListener("dragover", drag)
      removeEventListener("dragleave", leave)
      removeEventListener("drop", drop)
    }
  })
  return over
}

/**
 * The files of a paste. None if an editor has pasted a formatted text, because it adds a picture of this text.
 * @param {DataTransfer | null} data
 */
export const pastedFiles = (data) => data === null || data.types.includes("text/rtf") ? [] : [...data.files]
