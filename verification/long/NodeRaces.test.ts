import { describe } from "@effect/vitest"
import { races } from "../../test/contract/Races.ts"
import { Cluster, missingForNodes } from "../../test/support/Nodes.ts"

/**
 * As test/contract/Races.test.ts, where each actor is on one of two nodes. On a machine that is
 * too busy to answer within the 5 seconds that a call to another node may take, some get a 503.
 */
describe.skipIf(missingForNodes !== "")(
  `200 callers at once over two nodes${missingForNodes}`,
  { timeout: 60_000 },
  () => {
    races({
      start: async (env) => {
        const cluster = await Cluster.start(2, env)
        const [one, two] = cluster.pair
        return { database: cluster.env["DATABASE_URL"] ?? "", servers: [one, two], stop: () => cluster.stop() }
      },
      // Both ask the one that has the agent, or the group.
      abreast: 1
    })
  }
)
