import { Cause, Context, Effect, Exit, type Fiber } from "effect"
import { randomBytes } from "node:crypto"

/**
 * Traces (OpenTelemetry) show the work that a request causes, across nodes and into webhooks. A *trace context* is the
 * text of W3C's `traceparent` header. It is passed on together with the request id. A span is recorded when it ends,
 * and only if its request was sampled. A span that is not recorded costs only the check whether it must be recorded.
 * Attributes are names, codes and counts from the code. They never contain a body, a key or an address.
 */

/** `00-<32 hex: trace>-<16 hex: span>-<2 hex: flags>`. The last bit of the flags says whether the trace is sampled. */
export type TraceContext = string
export const TRACEPARENT = "traceparent"
const FORM = /^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$/

const traceIdOf = (context: TraceContext): string => context.slice(3, 35)
const spanIdOf = (context: TraceContext): string => context.slice(36, 52)
export const isSampled = (context: TraceContext): boolean => (Number.parseInt(context.slice(53), 16) & 1) === 1

/** OpenTelemetry's numbers for the kinds of spans. */
const KINDS = { internal: 1, server: 2, client: 3, producer: 4, consumer: 5 } as const
type Kind = keyof typeof KINDS

type Attributes = Readonly<Record<string, string | number | boolean>>

/** A span that has ended. Times are milliseconds since 1970, with fractions. */
export interface Span {
  readonly traceId: string
  readonly spanId: string
  readonly parentId: string | undefined
  readonly name: string
  readonly kind: number
  readonly start: number
  readonly end: number
  readonly attributes: Attributes
  readonly links: ReadonlyArray<{ readonly traceId: string; readonly spanId: string }>
  /** Why the work of the span failed: a code, or the name of an error. Undefined if it succeeded. */
  readonly failure: string | undefined
}

export interface Sampler {
  /** Whether the `traceparent` of a caller decides whether the request is sampled. */
  readonly followsParent: boolean
  /** Which share of all other requests is sampled, from 0 to 1. */
  readonly ratio: number
}

interface Tracing {
  readonly record: (span: Span) => void
  readonly sampler: Sampler
}

/** Undefined while tracing is off. */
let tracing: Tracing | undefined

/** Switches tracing on for this process, and returns a function that switches it off. */
export const startTracing = (on: Tracing): () => void => {
  tracing = on
  return () => {
    if (tracing === on) tracing = undefined
  }
}

export const isTracing = (): boolean => tracing !== undefined

/** Returns milliseconds since 1970, monotonic within the process. */
export const traceTime = (): number => performance.timeOrigin + performance.now()

const hex = (bytes: number): string => randomBytes(bytes).toString("hex")

/** Makes the context of a new span below `parent`. Callees receive the context before the span has ended. */
const below = (parent: TraceContext): TraceContext => `00-${traceIdOf(parent)}-${hex(8)}-01`

/**
 * Whether a trace is in the sampled share. The end of its id decides this, so that all services decide in the same way.
 */
const isOfShare = (traceId: string, ratio: number): boolean => Number.parseInt(traceId.slice(18), 16) < ratio * 2 ** 56

interface Details {
  readonly kind?: Kind
  readonly attributes?: Attributes
  readonly links?: ReadonlyArray<TraceContext>
  readonly failure?: string | undefined
}

const record = (
  parent: TraceContext | undefined,
  own: TraceContext,
  name: string,
  start: number,
  end: number,
  details: Details
): void =>
  tracing?.record({
    traceId: traceIdOf(own),
    spanId: spanIdOf(own),
    parentId: parent === undefined ? undefined : spanIdOf(parent),
    name,
    kind: KINDS[details.kind ?? "internal"],
    start,
    end,
    attributes: details.attributes ?? {},
    links: (details.links ?? []).map((link) => ({ traceId: traceIdOf(link), spanId: spanIdOf(link) })),
    failure: details.failure
  })

/**
 * Records a span from `start` to `end`, which is now by default. Returns the context of the span, or undefined if the
 * trace is not sampled.
 */
export const recordSpan = (
  parent: TraceContext | undefined,
  name: string,
  start: number,
  details: Details = {},
  end?: number
): TraceContext | undefined => {
  if (tracing === undefined || parent === undefined || !isSampled(parent)) return undefined
  const own = below(parent)
  record(parent, own, name, start, end ?? traceTime(), details)
  return own
}

/** The trace context of a fiber. */
const Trace = Context.Reference<TraceContext | undefined>("parley/platform/Tracing", { defaultValue: () => undefined })

/** Returns the trace context of a fiber. Returns undefined if the fiber has no trace context or tracing is off. */
export const traceOf = (fiber: Fiber.Fiber<unknown, unknown>): TraceContext | undefined =>
  tracing === undefined ? undefined : fiber.getRef(Trace)

/** The trace context of the current fiber. */
export const trace: Effect.Effect<TraceContext | undefined> = Effect.withFiberSucceed(traceOf)

/** Runs an effect under a trace context from another node, a client or the database. Ignores a malformed context. */
export const forTrace = <A, E, R>(
  context: TraceContext | null | undefined,
  effect: Effect.Effect<A, E, R>
): Effect.Effect<A, E, R> =>
  tracing === undefined || context === undefined || context === null || !FORM.test(context)
    ? effect
    : Effect.provideService(effect, Trace, context)

/**
 * Returns the failure that a span shows: the code of the wire or the tag of the error, but never the error's message.
 */
const failureOf = (exit: Exit.Exit<unknown, unknown>): string | undefined => {
  if (Exit.isSuccess(exit)) return undefined
  const reason = exit.cause.reasons.find((one) => !Cause.isInterruptReason(one))
  if (reason === undefined || Cause.isInterruptReason(reason)) return "interrupted"
  if (Cause.isDieReason(reason)) return "defect"
  const { error } = reason
  if (typeof error !== "object" || error === null) return "failed"
  if ("code" in error && typeof error.code === "string") return error.code
  return "_tag" in error && typeof error._tag === "string" ? error._tag : "failed"
}

/**
 * Runs an effect as a span of its fiber's trace. `toAttributes` makes the span's attributes from the effect's result.
 */
export const withTrace = <A, E, R>(
  name: string,
  kind: Kind,
  effect: Effect.Effect<A, E, R>,
  toAttributes?: (value: A) => Attributes
): Effect.Effect<A, E, R> => tracing === undefined ? effect : traced(name, kind, effect, toAttributes)

const traced = <A, E, R>(
  name: string,
  kind: Kind,
  effect: Effect.Effect<A, E, R>,
  toAttributes: ((value: A) => Attributes) | undefined
): Effect.Effect<A, E, R> =>
  Effect.withFiber((fiber) => {
    const parent = traceOf(fiber)
    if (parent === undefined || !isSampled(parent)) return effect
    const own = below(parent)
    const start = traceTime()
    return Effect.onExit(Effect.provideService(effect, Trace, own), (exit) =>
      Effect.sync(() =>
        record(parent, own, name, start, traceTime(), {
          kind,
          attributes: Exit.isSuccess(exit) ? toAttributes?.(exit.value) ?? {} : {},
          failure: failureOf(exit)
        })
      ))
  })

/** A request of a trace that begins or continues at this node. */
export interface TracedRequest {
  readonly context: TraceContext
  /** Records the span of the request. Only the first call has an effect. */
  readonly end: (name: string, attributes: Attributes, failure?: string) => void
}

const decide = ({ followsParent, ratio }: Sampler, parent: TraceContext | undefined): TracedRequest | undefined => {
  if (parent === undefined || !followsParent) {
    const traceId = parent === undefined ? undefined : traceIdOf(parent)
    const sampled = traceId === undefined ? Math.random() < ratio : isOfShare(traceId, ratio)
    // A trace context from the caller is passed on, marked as not sampled. Without such a context there is nothing to
    // pass on.
    if (!sampled)
      return parent === undefined
        ? undefined
        : { context: `${parent.slice(0, 53)}00`, end: () => undefined }
  } else if (!isSampled(parent)) return { context: parent, end: () => undefined }
  const own = parent === undefined ? `00-${hex(16)}-${hex(8)}-01` : below(parent)
  const start = traceTime()
  let ended = false
  return {
    context: own,
    end: (name, attributes, failure) => {
      if (ended) return
      ended = true
      record(parent, own, name, start, traceTime(), { kind: "server", attributes, failure })
    }
  }
}

/**
 * Decides whether a client's request is traced. `header` is the `traceparent` of the request. Returns undefined if the
 * request has no trace.
 */
export const traceRequest = (header: unknown): TracedRequest | undefined =>
  tracing === undefined
    ? undefined
    : decide(tracing.sampler, typeof header === "string" && FORM.test(header) ? header : undefined)

/**
 * Joins a request id and its trace context into one text for the outbox. A request id contains no space
 * (`requestIdFrom`), so the text after the first space is the context.
 */
export const joinOrigin = (requestId: string | null, context: TraceContext | undefined): string | null =>
  context === undefined ? requestId : `${requestId ?? ""} ${context}`

export const splitOrigin = (
  origin: string | null
): { readonly requestId: string | null; readonly trace: TraceContext | undefined } => {
  const space = origin?.indexOf(" ") ?? -1
  if (origin === null || space < 0) return { requestId: origin, trace: undefined }
  const trace = origin.slice(space + 1)
  return { requestId: space === 0 ? null : origin.slice(0, space), trace: FORM.test(trace) ? trace : undefined }
}
