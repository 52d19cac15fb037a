import { Schema } from "effect"

/** The body of every confirmation (wire.md B30). */
export const Confirm = Schema.Struct({ ok: Schema.Literal(true), message: Schema.String }).annotate({ identifier: "Confirm" })

export const confirm = (message: string): typeof Confirm.Type => ({ ok: true, message })
