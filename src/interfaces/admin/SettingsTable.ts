import type { EffectiveSetting } from "#infrastructure/platform/Config"
import type { Printed } from "./AdminClient.ts"
import { table } from "./TextTable.ts"

/** Settings as a table with their origins, or as JSON. */
export const settingsShown = (settings: ReadonlyArray<EffectiveSetting>): Printed => ({
  text: table([["variable", "value", "from"], ...settings.map(({ name, origin, value }) => [name, value, origin])]),
  data: settings
})
