import { endWithNpm } from "./Npm.ts"

/** The subcommands that take no arguments. The modules of each are loaded only when it is run. */
export const commands = {
  start: async () => {
    ;(await import("./Start.ts")).start()
    endWithNpm()
  },
  runner: async () => {
    ;(await import("./Runner.ts")).runner()
    endWithNpm()
  },
  migrate: async () => (await import("./Migrate.ts")).migrate(),
  demo: async () => (await import("./Demo.ts")).demo(),
  cluster: async () => {
    ;(await import("./Cluster.ts")).cluster()
    endWithNpm()
  }
}
