import { endWithNpm } from "./Npm.ts"

/** The subcommands without arguments. The modules of a subcommand are loaded only when it runs. */
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
