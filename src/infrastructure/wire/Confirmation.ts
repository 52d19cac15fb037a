import { Schema } from "effect"

/** The response body of every endpoint that only confirms a change (wire.md B30). */
export const Confirmation = Schema.Struct({ ok: Schema.Literal(true), message: Schema.String }).annotate({
  identifier: "Confirm"
})

export const confirm = (message: string): typeof Confirmation.Type => ({ ok: true, message })
