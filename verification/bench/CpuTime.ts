import { readdirSync, readFileSync } from "node:fs"

/** The unit of processor time in /proc on Linux. It does not depend on the kernel's own tick. */
const MICROS_PER_TICK = 10_000

interface Stat {
  readonly pid: number
  readonly parent: number
  /** Ticks of the process itself, those of them in the kernel, and those of its children that have ended. */
  readonly own: number
  readonly kernel: number
  readonly reaped: number
}

const stat = (pid: number): Stat | undefined => {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "latin1")
    // The process name in parentheses may contain spaces, so the fields are counted after it.
    const f = text.slice(text.lastIndexOf(")") + 2).split(" ").map(Number)
    return { pid, parent: f[1]!, own: f[11]! + f[12]!, kernel: f[12]!, reaped: f[13]! + f[14]! }
  } catch {
    return undefined
  }
}

/** Microseconds of processor time that one process has used. */
export const cpuOf = (pid: number): number => (stat(pid)?.own ?? 0) * MICROS_PER_TICK

/** Microseconds of processor time that one process has used in the kernel. */
export const kernelCpuOf = (pid: number): number => (stat(pid)?.kernel ?? 0) * MICROS_PER_TICK

/** Microseconds of processor time that the children of this process have used that have ended. */
export const cpuOfEnded = (): number => (stat(process.pid)?.reaped ?? 0) * MICROS_PER_TICK

/** Microseconds of processor time that a process and its descendants have used, including those that have ended. */
export const cpuOfTree = (root: number): number => {
  const children = new Map<number, Array<Stat>>()
  for (const name of readdirSync("/proc")) {
    const one = /^\d+$/.test(name) ? stat(Number(name)) : undefined
    if (one !== undefined) children.set(one.parent, [...(children.get(one.parent) ?? []), one])
  }
  const ticks = (one: Stat): number =>
    (children.get(one.pid) ?? []).reduce((sum, child) => sum + ticks(child), one.own + one.reaped)
  const start = stat(root)
  return start === undefined ? 0 : ticks(start) * MICROS_PER_TICK
}

export const parentOf = (pid: number): number | undefined => stat(pid)?.parent

/**
 * Microseconds of all processors since the machine started: `busy` while in use, `stolen` while used by other guests of
 * the host.
 */
export const machineCpu = (): { readonly busy: number; readonly stolen: number } => {
  const [user, nice, system, , , irq, softirq, steal] = readFileSync("/proc/stat", "latin1")
    .split("\n", 1)[0]!
    .split(/\s+/)
    .slice(1)
    .map(Number)
  return {
    busy: (user! + nice! + system! + irq! + softirq!) * MICROS_PER_TICK,
    stolen: steal! * MICROS_PER_TICK
  }
}
