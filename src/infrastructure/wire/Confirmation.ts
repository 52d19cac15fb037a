import { Schema } from "effect"

/** The body of every confirmation (wire.md B30). */
export const Confirmation = Schema.Struct({ ok: Schema.Literal(true), message: Schema.String }).annotate({
  identifier: "Confirm"
})

export const confirm = (message: string): typeof Confirmation.Type => ({ ok: true, message })
