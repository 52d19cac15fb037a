import type { DeliveryIds } from "#domain/deliveries/Delivery"

/** How far a subscription has read the inbox. */
export interface Position {
  /** The inbox number up to which every message was reported or did not need a report. */
  readonly no: number
  /** When `inbox.waiting` was last reported, in milliseconds. `null` if it was never reported, and for other events. */
  readonly reportedAt: number | null
}

const [OWN, DELIVERY] = ["evc_", "del_"]

/**
 * Encodes a position as an opaque text. The text consists of the inbox number, masked as in the agent's delivery ids,
 * and of the time in whole seconds if there is one.
 */
export const encodeCursor = (ids: DeliveryIds, agentId: string, { no, reportedAt }: Position): string =>
  OWN + ids.encode(agentId, no).slice(DELIVERY.length) +
  (reportedAt === null ? "" : `.${Math.floor(reportedAt / 1_000).toString(36)}`)

/** Decodes a cursor. Returns undefined if the text is not a cursor of this agent. */
export const decodeCursor = (ids: DeliveryIds, agentId: string, cursor: string): Position | undefined => {
  const [, masked, seconds] = /^evc_([0-9a-f]{32})(?:\.([0-9a-z]{1,8}))?$/.exec(cursor) ?? []
  if (masked === undefined) return undefined
  const no = ids.decode(agentId, DELIVERY + masked)
  return no === undefined
    ? undefined
    : { no, reportedAt: seconds === undefined ? null : Number.parseInt(seconds, 36) * 1_000 }
}
