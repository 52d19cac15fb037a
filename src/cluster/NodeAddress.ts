import { RunnerAddress } from "effect/cluster"

/** A node as the others know it and as tables and logs name it: RUNNER_HOST:RUNNER_PORT. */
export const nameOf = ({ host, port }: Pick<RunnerAddress.RunnerAddress, "host" | "port">): string => `${host}:${port}`

/** The address that a name stands for. */
export const addressOf = (node: string): RunnerAddress.RunnerAddress => {
  const colon = node.lastIndexOf(":")
  return RunnerAddress.make(node.slice(0, colon), Number(node.slice(colon + 1)))
}
