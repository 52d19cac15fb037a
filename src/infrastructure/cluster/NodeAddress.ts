import { RunnerAddress } from "effect/cluster"

/** The name of a node in calls, tables and logs: RUNNER_HOST:RUNNER_PORT. */
export const nameOf = ({ host, port }: Pick<RunnerAddress.RunnerAddress, "host" | "port">): string => `${host}:${port}`

/** Parses a node's name. */
export const addressOf = (node: string): RunnerAddress.RunnerAddress => {
  const colon = node.lastIndexOf(":")
  return RunnerAddress.make(node.slice(0, colon), Number(node.slice(colon + 1)))
}
