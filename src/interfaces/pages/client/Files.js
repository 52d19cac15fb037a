import { sizeOf } from "../shared/Texts.js"

/**
 * @import { FileInfo } from "./Wire.ts"
 * @import { Api } from "./Api.js"
 */

/**
 * The content types that the server accepts (wire.md G.5), by file extension. Browsers do not know the type of every
 * file.
 * @type {Readonly<Record<string, string>>}
 */
const byExtension = {
  png: "image/png",
  jpg: "image/jpeg",
  jpeg: "image/jpeg",
  gif: "image/gif",
  webp: "image/webp",
  pdf: "application/pdf",
  json: "application/json",
  txt: "text/plain",
  log: "text/plain",
  md: "text/markdown",
  csv: "text/csv",
  mp3: "audio/mpeg",
  wav: "audio/wav",
  ogg: "audio/ogg",
  mp4: "video/mp4",
  webm: "video/webm"
}
const taken = new Set(Object.values(byExtension))
export const MAX_FILE = 26_214_400

/** @param {File} file */
const typeOf = (file) => {
  const type = file.type.split(";")[0] ?? ""
  return taken.has(type) ? type : byExtension[file.name.split(".").at(-1)?.toLowerCase() ?? ""]
}

/** @param {Blob} file */
const digestOf = async (file) => {
  if (globalThis.crypto.subtle === undefined) {
    throw new Error(
      "The browser cannot compute the checksum of a file on this page. To send files, open the page over https or on the server's machine."
    )
  }
  const digest = await crypto.subtle.digest("SHA-256", await file.arrayBuffer())
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("")
}

/** Why a file cannot be sent; null if it can. @param {File} file */
export const problemOf = (file) =>
  file.size === 0
    ? "This file is empty."
    : file.size > MAX_FILE
    ? `This file is larger than ${sizeOf(MAX_FILE)}, which is the most that can be sent.`
    : typeOf(file) === undefined
    ? "Files of this type cannot be sent. You can send pictures, PDF, JSON, text, CSV, audio and video."
    : null

/** Whether a page can show a file of this type as a picture. Such a picture cannot contain code. @param {string} type */
export const isPicture = (type) => /^image\/(png|jpeg|gif|webp)$/.test(type)

/**
 * Uploads a file for one recipient or group, and returns its id.
 * @param {Api} api
 * @param {{ to: string } | { conversation_id: string }} target
 * @param {File} file
 * @param {{ onSent?: (bytes: number) => void, signal?: AbortSignal }} [options] `onSent` is called with the number of
 * bytes that have been sent
 * @returns {Promise<string>}
 */
export const upload = async (api, target, file, options = {}) => {
  const problem = problemOf(file)
  if (problem !== null) throw new Error(problem)
  const type = typeOf(file) ?? ""
  const sha256 = await digestOf(file)
  options.signal?.throwIfAborted()
  const { attachment_id: id, upload_url: url } = await api.post("v1/uploads", {
    ...target,
    filename: file.name.slice(0, 255),
    content_type: type,
    size: file.size,
    sha256
  })
  options.signal?.throwIfAborted()
  await api.upload(url, new Blob([file], { type }), options)
  return id
}

/** Saves these bytes as a browser download. @param {Blob} blob @param {string} name */
export const save = (blob, name) => {
  const url = URL.createObjectURL(blob)
  const link = document.createElement("a")
  link.href = url
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
}

/** How many fetched files, and how many of their bytes, are kept. */
const MOST_KEPT = 100
const MOST_BYTES = 100_000_000

/**
 * Caches the files and file descriptions that a session has fetched, so that a row that is drawn again after scrolling
 * fetches nothing.
 */
export class Files {
  /** @param {Api} api */
  constructor(api) {
    this.api = api
    /** @type {Map<string, Promise<FileInfo>>} */
    this.infos = new Map()
    /** The descriptions that were fetched. @type {Map<string, FileInfo>} */
    this.described = new Map()
    /** The sizes of the pictures that were shown, in pixels. @type {Map<string, { width: number, height: number }>} */
    this.sizes = new Map()
    /**
     * The cached files, the most recently used last.
     * @type {Map<string, { blob: Blob, name: string | undefined, url: string }>}
     */
    this.kept = new Map()
  }

  /** The name, the size and the type of a file. @param {string} id @returns {Promise<FileInfo>} */
  info(id) {
    const known = this.infos.get(id)
    if (known !== undefined) return known
    const asked = this.api.get(`v1/attachments/${encodeURIComponent(id)}/info`)
    this.infos.set(id, asked)
    asked.then((info) => this.described.set(id, info), () => this.infos.delete(id))
    return asked
  }

  /**
   * The bytes of a file, and a blob URL for them.
   * @param {string} id
   * @returns {Promise<{ blob: Blob, name: string | undefined, url: string }>} `name` is the name that the response
   * suggests
   */
  async fetched(id) {
    let file = this.kept.get(id)
    if (file === undefined) {
      const { blob, name } = await this.api.file(id)
      file = { blob, name, url: URL.createObjectURL(blob) }
    }
    this.kept.delete(id)
    this.kept.set(id, file)
    this.trim(MOST_KEPT, MOST_BYTES)
    return file
  }

  /**
   * The blob URL of a picture. `sizes` has its size then.
   * @param {string} id
   * @returns {Promise<string>}
   */
  async picture(id) {
    const { blob, url } = await this.fetched(id)
    if (!isPicture(blob.type)) throw new Error("This file is not a picture. Save it to open it.")
    const image = new Image()
    image.src = url
    await image.decode().catch(() => Promise.reject(new Error("This picture is damaged. Save it to open it.")))
    this.sizes.set(id, { width: image.naturalWidth, height: image.naturalHeight })
    return url
  }

  /** Removes the least recently used files. @param {number} most @param {number} mostBytes */
  trim(most, mostBytes) {
    let bytes = 0
    for (const { blob } of this.kept.values()) bytes += blob.size
    for (const [id, { blob, url }] of this.kept) {
      if (this.kept.size <= most && bytes <= mostBytes) return
      this.kept.delete(id)
      URL.revokeObjectURL(url)
      bytes -= blob.size
    }
  }

  /** Removes all files. */
  end() {
    this.trim(0, 0)
  }
}
