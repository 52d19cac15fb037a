/** The recipient of a file: an agent by its number, or a group by its name. */
export type Scope = number | string

export interface File {
  readonly name: number
  readonly uploader: number
  readonly scope: Scope
  readonly expires: number
  stored: boolean
  references: number
  id: string
  url: string
}

const UPLOAD = 900_000

/** Files from reservation to reference (wire.md C.11, F). */
export class Attachments {
  readonly files: Array<File> = []

  reserve(uploader: number, scope: Scope, at: number): File {
    const file = {
      name: this.files.length,
      uploader,
      scope,
      expires: at + UPLOAD,
      stored: false,
      references: 0,
      id: "",
      url: ""
    }
    this.files.push(file)
    return file
  }

  /**
   * Uploads the announced bytes, as many other bytes, or fewer. Returns the refusal, or undefined if the file is
   * stored.
   */
  put(file: File, bytes: "right" | "other" | "short", now: number): string | undefined {
    if (now >= file.expires) return "Forbidden"
    if (file.stored) return "AlreadyUploaded"
    if (bytes === "short") return "SizeMismatch"
    if (bytes === "other") return "ChecksumMismatch"
    file.stored = true
    return undefined
  }

  /** Why a message may not refer to the file; undefined if it may. */
  obstacle(file: File, sender: number, scope: Scope): string | undefined {
    if (file.uploader !== sender) return "AttachmentNotFound"
    if (file.scope !== scope) return "AttachmentWrongScope"
    return file.stored ? undefined : "AttachmentNotReady"
  }

  edges(): ReadonlyArray<number> {
    return this.files.filter((file) => !file.stored).map((file) => file.expires)
  }
}
