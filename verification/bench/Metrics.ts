import type { ServerProcess } from "../../test/support/ServerProcess.ts"

export const metrics = (server: ServerProcess): Promise<string> =>
  fetch(`${server.url}/internal/metrics`).then((response) => response.text())

/** The value of one metric, summed over all its labels. */
export const metric = (text: string, name: string): number => {
  let sum = 0
  for (const [, value] of text.matchAll(new RegExp(`^${name}(?:\\{[^}]*\\})? (\\S+)`, "gm"))) sum += Number(value)
  return sum
}

export interface Batches {
  readonly commits: number
  readonly items: number
}

export interface Counts {
  /** Commits and items of each group commit, by its name. */
  readonly batches: ReadonlyMap<string, Batches>
  readonly remoteCalls: number
  readonly remotePushes: number
}

/** The sums of the nodes' counters so far. */
export const counts = async (servers: ReadonlyArray<ServerProcess>): Promise<Counts> => {
  const text = (await Promise.all(servers.map(metrics))).join("\n")
  const found = new Map<string, Batches>()
  for (const [, name] of text.matchAll(/^(\w+)_batch_size_count/gm)) {
    found.set(name!, {
      commits: metric(text, `${name}_batch_size_count`),
      items: metric(text, `${name}_batch_size_sum`)
    })
  }
  return {
    batches: found,
    remoteCalls: metric(text, "remote_calls_total"),
    remotePushes: metric(text, "remote_pushes_total")
  }
}

/** Items per commit between two counts, by the name of the group commit. */
export const meanBatches = (before: Counts, after: Counts): Record<string, number> =>
  Object.fromEntries(
    [...after.batches].flatMap(([name, { commits, items }]) => {
      const earlier = before.batches.get(name) ?? { commits: 0, items: 0 }
      return commits === earlier.commits ? [] : [[name, (items - earlier.items) / (commits - earlier.commits)]]
    })
  )

/** Calls to actors of other nodes and pushes to sockets there, for each message that was sent between two counts. */
export const crossings = (before: Counts, after: Counts): { readonly calls: number; readonly pushes: number } => {
  const sent = ({ batches }: Counts) =>
    (batches.get("message")?.items ?? 0) + (batches.get("group_message")?.items ?? 0)
  const sends = Math.max(1, sent(after) - sent(before))
  return {
    calls: (after.remoteCalls - before.remoteCalls) / sends,
    pushes: (after.remotePushes - before.remotePushes) / sends
  }
}
