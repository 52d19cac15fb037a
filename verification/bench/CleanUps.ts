/** The clean-ups that run when the bench ends, whatever the reason, the last one first. */
const pending: Array<() => Promise<unknown>> = []

export const whenOver = (end: () => Promise<unknown>): void => void pending.push(end)

export const cleanUp = async (): Promise<void> => {
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) await next().catch(console.error)
}

for (const signal of ["SIGINT", "SIGTERM"] as const) {
  process.once(signal, () => void cleanUp().then(() => process.exit(130)))
}
