import { Layer } from "effect"

/** The entities that this process may own; each room's `*EntityLive.ts` goes in here. */
export const layer = Layer.empty
