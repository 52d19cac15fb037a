import { WireError } from "#infrastructure/wire/WireError"

/** The current state does not allow the request. The message tells why. */
export class Conflict extends WireError<Conflict>()("Conflict", {
  code: "CONFLICT",
  status: 409,
  message: "This is not possible in the current state."
}) {}
