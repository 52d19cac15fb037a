import type { SceneKind } from "./Scene.ts"

/** How fast messages are sent. `share` is a share of the greatest throughput so far. */
export type Pace =
  | { readonly kind: "full" }
  | { readonly kind: "share"; readonly share: number }
  | { readonly kind: "rate"; readonly perSecond: number }
  /** The next message is sent when the last one has arrived. */
  | { readonly kind: "alone" }

/** A period of load that is measured. */
export interface Window {
  readonly label: string
  readonly pace: Pace
  readonly inFlight: number
  readonly warmUpSeconds: number
  readonly seconds: number
  readonly messages: number
  /** Whether it is measured in the first round only. */
  readonly once: boolean
  /** Whether the floor is measured in it too. */
  readonly floor: boolean
}

export interface WindowOptions {
  readonly scene: SceneKind
  readonly windows: "all" | "alone" | "half"
  readonly inFlight: ReadonlyArray<number>
  readonly seconds: number
  readonly secondsAside: number
  readonly warmUp: number
  readonly messages: number
}

export const HALF = "half load"
export const ONE_AT_A_TIME = "one at a time"
export const TEN = "10 messages/s"
export const fullLabel = (inFlight: number): string => `${inFlight} in flight`

/** The number of members that write to a group at once, which is enough to keep it busy. */
const WRITERS = 8

/** The windows of one round, in order. */
export const windowsOf = (options: WindowOptions): ReadonlyArray<Window> => {
  const [most = 64] = options.inFlight
  const full = (inFlight: number): Window => ({
    label: fullLabel(inFlight),
    pace: { kind: "full" },
    inFlight,
    warmUpSeconds: options.warmUp,
    seconds: options.seconds,
    messages: options.messages,
    once: false,
    floor: options.scene === "ring"
  })
  const aside = { warmUpSeconds: 1, seconds: options.secondsAside, messages: 0, once: false, floor: false }
  const share = (label: string, part: number, inFlight: number): Window => ({
    ...aside,
    label,
    pace: { kind: "share", share: part },
    inFlight
  })
  const alone: Window = {
    ...aside,
    label: ONE_AT_A_TIME,
    pace: { kind: "alone" },
    inFlight: 1,
    floor: options.scene === "ring"
  }
  if (options.scene === "group") {
    return [
      full(WRITERS),
      { ...aside, label: TEN, pace: { kind: "rate", perSecond: 10 }, inFlight: WRITERS },
      ...[0.25, 0.5, 0.75].map((part) => share(`${part * 100} % of that`, part, WRITERS))
    ]
  }
  switch (options.windows) {
    case "alone":
      return [alone]
    case "half":
      return [{ ...full(most), once: true, floor: false }, share(HALF, 0.5, most)]
    case "all":
      return options.scene === "hot"
        ? options.inFlight.map(full)
        : [...options.inFlight.map(full), share(HALF, 0.5, most), alone]
  }
}
