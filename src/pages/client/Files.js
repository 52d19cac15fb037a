/** @import { Api } from "./Api.js" */

/** What the server takes (wire.md G.5), and what browsers do not know the type of. @type {Readonly<Record<string, string>>} */
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
    throw new Error("Browsers compute the checksum of a file only on pages that came by https or from this machine: open this page so to send files.")
  }
  const digest = await crypto.subtle.digest("SHA-256", await file.arrayBuffer())
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("")
}

/**
 * Uploads a file for one recipient or group, and gives its id.
 * @param {Api} api
 * @param {{ to: string } | { conversation_id: string }} target
 * @param {File} file
 * @returns {Promise<string>}
 */
export const upload = async (api, target, file) => {
  const type = typeOf(file)
  if (file.size === 0) throw new Error("This file is empty.")
  if (file.size > MAX_FILE) throw new Error("This file is larger than 26 MB, which is the most that can be sent.")
  if (type === undefined) throw new Error("Files of this type are not taken. Pictures, PDF, JSON, text, CSV, audio and video are.")
  const { attachment_id: id, upload_url: url } = await api.post("v1/uploads", {
    ...target,
    filename: file.name.slice(0, 255),
    content_type: type,
    size: file.size,
    sha256: await digestOf(file)
  })
  await api.upload(url, new Blob([file], { type }))
  return id
}

/** Lets the browser save these bytes. @param {Blob} blob @param {string} name */
export const save = (blob, name) => {
  const url = URL.createObjectURL(blob)
  const link = document.createElement("a")
  link.href = url
  link.download = name
  link.click()
  setTimeout(() => URL.revokeObjectURL(url), 60_000)
}
