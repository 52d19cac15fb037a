import { Auth } from "#domain/auth/Auth"
import { Deliveries } from "#domain/deliveries/Deliveries"
import { Presences } from "#domain/presence/Presences"
import { LiveAgents } from "#domain/push/LiveAgents"
import { LargeReads } from "#infrastructure/concurrency/LargeReads"
import { isWait, type ToolApi } from "#interfaces/mcp/tools/Tool"
import { allTools } from "#interfaces/mcp/Toolset"
import { Waiters } from "#interfaces/realtime/Waiters"
import { Context, Effect, Exit, Fiber, Layer } from "effect"
import type { Party } from "../../test/support/Modules.ts"

/** How a mutant changes the services that waits use, or their answers. */
export interface WaitMutant {
  readonly below?: (real: Below) => Below
  readonly wait?: (wait: Waiters["Service"]["wait"], real: Below) => Waiters["Service"]["wait"]
}

export interface Below {
  readonly deliveries: Deliveries["Service"]
  readonly liveAgents: LiveAgents["Service"]
}

/** The structured answer of `agentchat_wait_for_messages`. */
export interface WaitAnswer {
  readonly outcome: "messages" | "timeout" | "moved"
  readonly acknowledged: number
  readonly acknowledge_through: string | null
  readonly messages: ReadonlyArray<Record<string, unknown>>
}

/** A call of the tool. It is open while it has no `exit`. */
export interface OpenWait {
  readonly fiber: Fiber.Fiber<WaitAnswer, unknown>
  exit: Exit.Exit<WaitAnswer, unknown> | undefined
}

/**
 * Calls of the tool as `/mcp` makes them, without HTTP, and a function that waits until none of their work is under
 * way.
 */
export const makeWaits = Effect.fnUntraced(function*(mutant: WaitMutant, breath: Effect.Effect<void>) {
  const real: Below = { deliveries: yield* Deliveries, liveAgents: yield* LiveAgents }
  const { deliveries, liveAgents } = mutant.below === undefined ? real : mutant.below(real)
  const runFork = Effect.runForkWith(yield* Effect.context<never>())
  const tool = allTools.tools.get("agentchat_wait_for_messages")
  if (tool === undefined) throw new Error("no such tool")

  let underWay = 0
  const counted = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.suspend(() => {
      underWay++
      return Effect.ensuring(
        effect,
        Effect.sync(() => {
          underWay--
        })
      )
    })
  const auth = Context.get(yield* Layer.build(Auth.layer), Auth)
  const waiters = Context.get(
    yield* Layer.build(Layer.provide(
      Waiters.layer,
      Layer.mergeAll(
        // The pauses between large answers are not simulated, because a stall of this process would make an agent wait
        // for the test clock, which stands still.
        Layer.succeed(LargeReads, LargeReads.of({ ...yield* LargeReads, during: (_agent, _size, effect) => effect })),
        // Presence is not simulated, because its pushes would reach the sockets of all contacts.
        Layer.succeed(Presences, Presences.of({ ...yield* Presences, sockets: () => Effect.void })),
        Layer.succeed(
          Deliveries,
          Deliveries.of({
            ...deliveries,
            waiting: (...args) => counted(deliveries.waiting(...args)),
            sync: (...args) => counted(deliveries.sync(...args)),
            heads: (...args) => counted(deliveries.heads(...args))
          })
        ),
        Layer.succeed(
          LiveAgents,
          LiveAgents.of({
            ...liveAgents,
            loadMutes: (actor) => counted(liveAgents.loadMutes(actor)),
            reachable: counted(liveAgents.reachable)
          })
        )
      )
    )),
    Waiters
  )
  const waitFor = mutant.wait === undefined ? waiters.wait : mutant.wait(waiters.wait, real)

  const begin = (agent: Party & { readonly key: string }, args: object): OpenWait => {
    const api = {
      agent,
      call: (_method: string, _url: string, body: { readonly last_delivery_id: string }) =>
        counted(
          Effect.map(
            real.deliveries.acknowledgeThrough(agent.id, body.last_delivery_id),
            (acked) => ({ headers: {}, body: { acked } })
          )
        )
    } as unknown as ToolApi
    const principal = { agentId: agent.id, check: counted(auth.authenticate(agent.key)) }
    const answer = Effect.flatMap(tool.run(args, api), (result) =>
      isWait(result)
        ? Effect.map(waitFor(principal, result.limit, result.timeoutMs), result.answer)
        : Effect.succeed(result))
    const fiber = runFork(Effect.map(answer, ({ value }) => value as WaitAnswer))
    const open: OpenWait = { fiber, exit: undefined }
    fiber.addObserver((exit) => {
      open.exit = exit
    })
    return open
  }

  return {
    begin,
    /** Waits until nothing was under way for four turns of the event loop. Then each wait has its answer or sleeps. */
    settle: Effect.gen(function*() {
      for (let quiet = 0; quiet < 4;) {
        yield* breath
        quiet = underWay === 0 ? quiet + 1 : 0
      }
    })
  }
})
