import { createHmac } from "node:crypto"

/**
 * Converts a recipient's inbox numbers to delivery ids and back. A delivery id is `del_` and 32 hex digits: 20 are
 * derived from the recipient, and 12 contain the masked number. Ids are stable and opaque. The id of another agent's
 * delivery is recognised without a query.
 */
export interface DeliveryIds {
  readonly encode: (agentId: string, inboxNo: number) => string
  /** Returns the number, or undefined for a text that is not a delivery id of this agent. */
  readonly decode: (agentId: string, deliveryId: string) => number | undefined
}

interface Mask {
  readonly tag: string
  readonly high: number
  readonly low: number
}

const MAX_CACHED = 20_000
const HALF = 0x1000000

export const makeDeliveryIds = (secret: Uint8Array): DeliveryIds => {
  const masks = new Map<string, Mask>()
  const maskOf = (agentId: string): Mask => {
    const known = masks.get(agentId)
    if (known !== undefined) return known
    const digest = createHmac("sha256", secret).update(agentId).digest()
    const mask = {
      tag: `del_${digest.toString("hex", 0, 10)}`,
      high: digest.readUIntBE(10, 3),
      low: digest.readUIntBE(13, 3)
    }
    if (masks.size >= MAX_CACHED) masks.clear()
    masks.set(agentId, mask)
    return mask
  }
  return {
    encode: (agentId, inboxNo) => {
      const { high, low, tag } = maskOf(agentId)
      const upper = (Math.floor(inboxNo / HALF) ^ high).toString(16).padStart(6, "0")
      return `${tag}${upper}${((inboxNo % HALF) ^ low).toString(16).padStart(6, "0")}`
    },
    decode: (agentId, deliveryId) => {
      const { high, low, tag } = maskOf(agentId)
      if (deliveryId.length !== 36 || !deliveryId.startsWith(tag) || !/^[0-9a-f]{12}$/.test(deliveryId.slice(24))) {
        return undefined
      }
      return (Number.parseInt(deliveryId.slice(24, 30), 16) ^ high) * HALF +
        (Number.parseInt(deliveryId.slice(30), 16) ^ low)
    }
  }
}
