import { Database } from "#infrastructure/database/Sql"
import { type Charge, RateRefusal, type RateRule, type RateState } from "#infrastructure/rates/RateRule"
import { SlidingWindows } from "#infrastructure/rates/SlidingWindows"
import { assert, describe, layer } from "@effect/vitest"
import { Context, Effect, Layer } from "effect"
import { SqlClient } from "effect/sql"
import { layerPgliteTest, type TestDatabase } from "../../test/support/Databases.ts"
import { replacing } from "./Mutants.ts"
import { CODES } from "./rules/Codes.ts"
import { codeStepsOf, layerCodes, makeCodesWorld } from "./rules/CodesWorld.ts"
import { eventStepsOf, layerEvents, makeEventsWorld } from "./rules/EventsWorld.ts"
import { Ledger } from "./rules/Ledger.ts"
import { layerRates, makeRatesWorld, rateStepsOf } from "./rules/RatesWorld.ts"
import { layerSociety, makeSocietyWorld } from "./rules/SocietyWorld.ts"
import { stepsOf } from "./rules/Steps.ts"
import { type Run, searchAmong } from "./Search.ts"

/** A fixed seed, so that a mutant is found every time. */
const SEED = 20_261_120
/** The number of histories, one of which must find a mutant. */
const RUNS = 40
/** Whether to test all mutants, or only a representative selection. */
const ALL = process.env["RULES_MUTANTS"] === "all"

/** A mutant: some of the product's statements, each with one passage changed. */
interface Mutant {
  readonly what: string
  /** The seed with which the search begins instead of `SEED`, shortly before the one that finds the mutant. */
  readonly seed?: number
  readonly statements: Readonly<Record<string, readonly [from: string | RegExp, to: string]>>
}

const often: ReadonlyArray<Mutant> = [
  {
    what: "a window of 23 hours for blocks",
    seed: 20_261_144,
    statements: { enforcement_case: ["SELECT b.created_at ", "SELECT b.created_at - 3600000 "] }
  },
  {
    what: "blocks that count whoever wrote first",
    seed: 20_261_124,
    statements: { enforcement_case: ["AND b.counts", ""] }
  },
  {
    what: "a reply that frees no slot",
    seed: 20_261_145,
    statements: { append: ["f.establishes AND s.conversation_id", "false AND s.conversation_id"] }
  },
  {
    what: "a mute that outlives its end",
    seed: 20_261_163,
    statements: {
      all_mutes: ["m.muted_until FROM", "m.muted_until + 7200000 AS muted_until FROM"],
      one_mute: ["SELECT m.*,", "SELECT m.*, m.muted_until + 7200000 AS muted_until,"]
    }
  },
  {
    what: "a reaction across a block",
    statements: { find_for_reaction: [/\(left\(m\.conversation_id[\s\S]*?\)\) AS blocked/, "false AS blocked"] }
  },
  {
    what: "a second final outcome that wins",
    statements: { record_outcome: ["WHERE o.state = 'working' AND excluded.state <> 'working'", ""] }
  }
]

const rarely: ReadonlyArray<Mutant> = [
  {
    what: "a cold window of 23 hours",
    statements: { reserve_cold_slot: ["claimed_at > $2", "claimed_at > $2::bigint + 3600000"] }
  },
  {
    what: "a mute that is listed after its end",
    seed: 20_261_143,
    statements: { list_mutes: ["m.muted_until > $2::bigint", "m.muted_until > $2::bigint - 7200000"] }
  },
  {
    what: "a removal that leaves what waits",
    statements: { change_group: ["AND conversation_id = h.id AND delivered_at IS NULL", "AND false"] }
  },
  {
    what: "a group message that is as far as its fastest recipient",
    statements: { group_history_before: ["count(*) = count(x.read_at)", "count(x.read_at) > 0"] }
  },
  {
    what: "a refusal that holds for 23 hours",
    statements: { invite_to_group: ["r.refused_at > $10::bigint", "r.refused_at - 3600000 > $10::bigint"] }
  },
  {
    what: "an invite that outlives its inviter",
    statements: {
      group_invites_about: [/UNION ALL\s+SELECT id, group_id FROM group_invites WHERE inviter_id = \$1/, ""]
    }
  },
  {
    what: "a sixth reaction of one agent",
    statements: { add_reaction: ["WHERE agent_id = $3) < 5", "WHERE agent_id = $3) < 6"] }
  },
  {
    what: "a reaction to a hidden message",
    statements: { find_for_reaction: [/AND \(\s*SELECT true FROM hidden_messages[\s\S]*?\) IS NULL/, ""] }
  },
  {
    what: "a reaction to a message from before an agent joined or hid the conversation",
    seed: 20_261_136,
    statements: { find_for_reaction: ["AND m.seq > p.hidden_through", ""] }
  },
  {
    what: "a withdrawn reaction that is pushed across a block",
    statements: { remove_reaction: ["(NOT $6::boolean OR p.agent_id = $3)", "(NOT $6::boolean OR true)"] }
  },
  {
    what: "a reaction to a system message",
    statements: { find_for_reaction: ["m.type <> 'system' AND ", ""] }
  },
  {
    what: "an outcome that never becomes final",
    statements: { record_outcome: ["WHERE o.state = 'working' AND", "WHERE false AND"] }
  },
  {
    what: "an outcome that keeps its first reason",
    seed: 20_261_132,
    statements: { record_outcome: ["reason = excluded.reason,", "reason = COALESCE(o.reason, excluded.reason),"] }
  },
  {
    what: "an outcome that is reported across a block",
    seed: 20_261_172,
    statements: { record_outcome: [/\(left\(conversation_id[\s\S]*?\)\) AS blocked/, "false AS blocked"] }
  },
  {
    what: "an outcome whose reason passes a block",
    statements: { record_outcome: ["AND NOT a.blocked THEN", "THEN"] }
  },
  {
    what: "a list of outcomes for all who know the message",
    statements: { list_outcomes: ["AND m.sender_id = $2", "AND $2::text IS NOT NULL"] }
  },
  {
    what: "hops that are not counted up",
    statements: { cause: ["SELECT m.metadata", "SELECT '{}' AS metadata"] }
  },
  {
    what: "a cause of 23 hours at most",
    seed: 20_261_161,
    statements: { cause: ["m.created_at > $3", "m.created_at > $3::bigint + 3600000"] }
  },
  {
    what: "a cause that the sender does not know",
    seed: 20_261_187,
    statements: { cause: ["m.sender_id = $2", "$2::text IS NOT NULL"] }
  }
]

const ofEvents: ReadonlyArray<Mutant> = [
  {
    what: "a failed event that is left out",
    statements: { webhook_failed: ["attempts = attempts + 1, due_at = $5,", "attempts = attempts + 1, due_at = NULL,"] }
  },
  { what: "a mute that is ignored", statements: { all_mutes: ["m.muter_id = $1", "m.muter_id = $1 AND false"] } },
  {
    what: "a number that moves without an event",
    statements: { step_of_webhook: ["FROM moved WHERE $5", "FROM moved WHERE $3::bigint % 4 > 0 AND $5"] }
  },
  {
    what: "a number that moves too far",
    statements: { step_of_webhook: ["inbox_no = $3,", "inbox_no = $3::bigint + ($5::text IS NOT NULL)::integer,"] }
  },
  {
    what: "a delivered message that is reported",
    statements: {
      inbox_waiting: ["AND delivered_at IS NULL", ""],
      inbox_chosen: ["AND e.delivered_at IS NULL", ""]
    }
  },
  {
    what: "an event that stays in the outbox",
    statements: { webhook_delivered: ["due_at = NULL", "due_at = due_at"] }
  },
  { what: "a lease that is ignored", statements: { reply_leases: ["ends_at > $2", "ends_at > $2::bigint + 3600000"] } },
  {
    what: "a suspension that ends with the newest message",
    statements: {
      resume_webhook: [
        "active = true,",
        "active = true, inbox_no = (SELECT last_no FROM inboxes n WHERE n.agent_id = webhooks.agent_id),"
      ]
    }
  },
  { what: "a suspension that a refresh does not end", statements: { resume_webhook: ["active = true,", ""] } },
  {
    what: "news that a webhook does not see",
    statements: { webhook_work: ["n.last_no > w.inbox_no", "n.last_no > w.inbox_no + 1"] }
  },
  {
    what: "a lease that nobody looks after",
    statements: { step_of_webhook: ["look_at = $4,", "look_at = $4::bigint + 7200000,"] }
  }
]

/** A database on which the current mutant's statements replace those of the product. */
const layerMutable = (database: TestDatabase, state: { mutant: Mutant | undefined }): TestDatabase =>
  Layer.effectContext(Effect.gen(function*() {
    const sql = yield* SqlClient.SqlClient
    const real = yield* Database
    /** A statement, or that of the current mutant in its place. `make` prepares a statement. */
    const mutable = <Run extends (params: ReadonlyArray<unknown>) => unknown>(
      make: (name: string, text: string) => Run,
      name: string,
      text: string
    ) => {
      const sound = make(name, text)
      const mutated = new Map<Mutant, Run>()
      return ((params) => {
        const { mutant } = state
        const change = mutant?.statements[name]
        if (mutant === undefined || change === undefined) return sound(params)
        let statement = mutated.get(mutant)
        if (statement === undefined) {
          statement = make(`${name}_${serial++}`, replacing(text, ...change))
          mutated.set(mutant, statement)
        }
        return statement(params)
      }) as Run
    }
    const prepared: typeof real.prepared = <Row extends object>(name: string, text: string) =>
      mutable(real.prepared<Row>, name, text)
    const raw: typeof real.raw = <Row extends object>(name: string, text: string) => mutable(real.raw<Row>, name, text)
    return Context.make(SqlClient.SqlClient, sql).pipe(Context.add(Database, { ...real, prepared, raw }))
  })).pipe(Layer.provide(database))

let serial = 0

const isFound = (found: string | undefined, what: string): void => {
  assert.isString(found, `${what}: no history of ${RUNS} found it`)
  assert.match(found ?? "", /^Rule broken: /, what)
}

const search = <C, R>(
  run: Run<C, R>,
  commandsOf: (seed: number) => ReadonlyArray<C>,
  seed = SEED
) => searchAmong({ run, commandsOf, runs: RUNS, seed, shrinks: 0, again: String })

describe("society", () => {
  const state: { mutant: Mutant | undefined } = { mutant: undefined }
  layer(layerSociety(layerMutable(layerPgliteTest, state)))((it) => {
    for (const mutant of [...often, ...ALL ? rarely : []]) {
      it.effect(`the models find ${mutant.what}`, () =>
        Effect.gen(function*() {
          state.mutant = mutant
          const run = yield* makeSocietyWorld(new Ledger())
          isFound(yield* search(run, (seed) => stepsOf(seed, 90), mutant.seed), mutant.what)
        }).pipe(Effect.ensuring(Effect.sync(() => {
          state.mutant = undefined
        }))))
    }
  })
})

describe("events", () => {
  const state: { mutant: Mutant | undefined } = { mutant: undefined }
  layer(layerEvents(layerMutable(layerPgliteTest, state)))((it) => {
    for (const mutant of ALL ? ofEvents : ofEvents.slice(0, 2)) {
      it.effect(`the model finds ${mutant.what}`, () =>
        Effect.gen(function*() {
          state.mutant = mutant
          isFound(yield* search(yield* makeEventsWorld(), (seed) => eventStepsOf(seed, 60), mutant.seed), mutant.what)
        }).pipe(Effect.ensuring(Effect.sync(() => {
          state.mutant = undefined
        }))))
    }
  })
})

describe("codes", () => {
  const about = [
    ["a pending id that survives six wrong tries", { LIMITS_OTP_ATTEMPTS: 6 }],
    ["pending ids that share five tries", { LIMITS_OTP_ATTEMPTS_PER_CODE: 5 }],
    ...ALL
      ? [
        ["a code with a try too many over all its pending ids", { LIMITS_OTP_ATTEMPTS_PER_CODE: CODES.perCode + 1 }],
        ["a code that lives a second too long", { LIMITS_OTP_TTL_SECONDS: 601 }],
        ["a cooldown of 59 seconds", { LIMITS_OTP_COOLDOWN_SECONDS: 59 }]
      ] as const
      : []
  ] as const
  for (const [what, changes] of about) {
    layer(layerCodes(layerPgliteTest, changes))((it) => {
      it.effect(`the model finds ${what}`, () =>
        Effect.gen(function*() {
          isFound(yield* search(yield* makeCodesWorld(new Ledger()), (seed) => codeStepsOf(seed, 50)), what)
        }))
    })
  }
  if (ALL) {
    layer(layerCodes(layerPgliteTest))((it) => {
      it.effect("the model finds a used code that leaves its cooldown", () =>
        Effect.gen(function*() {
          const sql = yield* SqlClient.SqlClient
          yield* sql.unsafe(`
            CREATE FUNCTION keep_cooling() RETURNS trigger LANGUAGE plpgsql AS
              $$ BEGIN NEW.cleared = false; RETURN NEW; END $$;
            CREATE TRIGGER keep_cooling BEFORE UPDATE ON code_addresses FOR EACH ROW EXECUTE FUNCTION keep_cooling();`)
            .unprepared
          isFound(yield* search(yield* makeCodesWorld(new Ledger()), (seed) => codeStepsOf(seed, 50)), "cooldown")
        }))
    })
  }
})

/** Counts requests in fixed windows of the clock instead of sliding ones. */
class FixedWindows extends SlidingWindows {
  private readonly counts = new Map<string, { readonly window: number; n: number }>()

  override takeAll(charges: ReadonlyArray<Charge>): ReadonlyArray<RateState> | RateRefusal {
    const taken: Array<RateState> = []
    for (const { key, rule } of charges) {
      const one = this.takeOne(rule, key)
      if (one instanceof RateRefusal) return one
      taken.push(one)
    }
    return taken
  }

  private takeOne(rule: RateRule, key: string): RateState | RateRefusal {
    const now = this["now"]()
    const window = Math.floor(now / rule.windowMs)
    const known = this.counts.get(`${rule.name} ${key}`)
    const count = known?.window === window ? known : { window, n: 0 }
    const resetMs = (window + 1) * rule.windowMs - now
    if (count.n >= rule.limit) return new RateRefusal(rule, resetMs)
    count.n++
    this.counts.set(`${rule.name} ${key}`, count)
    return { limit: rule.limit, remaining: rule.limit - count.n, resetMs, at: now, sharedAt: null }
  }
}

interface RateMutant {
  readonly what: string
  readonly seed?: number
  /** What is charged instead. */
  readonly charge: (charge: Charge) => Charge
  readonly keepsRefunds?: true
}

const isBudget = ({ rule }: Charge): boolean => rule.name.endsWith("_budget")

const ofBudgets: ReadonlyArray<RateMutant> = [
  {
    what: "a budget with a window of 23 hours",
    charge: ({ key, rule }) => ({ key, rule: { ...rule, windowMs: rule.windowMs - 3_600_000 } })
  },
  {
    what: "a budget with one send too many",
    charge: ({ key, rule }) => ({ key, rule: { ...rule, limit: rule.limit + 1 } })
  },
  { what: "a budget that counts refused sends and replays", charge: (charge) => charge, keepsRefunds: true },
  {
    what: "a budget of a conversation that counts all conversations",
    charge: ({ key, rule }) => ({ key: rule.name === "conversation_budget" ? key.split(" ")[0]! : key, rule })
  }
]

describe("budgets", () => {
  layer(layerSociety(layerPgliteTest))((it) => {
    for (const mutant of ALL ? ofBudgets : ofBudgets.slice(0, 1)) {
      it.effect(`the models find ${mutant.what}`, () =>
        Effect.gen(function*() {
          const { refund, takeAll } = SlidingWindows.prototype
          SlidingWindows.prototype.takeAll = function(charges) {
            return takeAll.call(this, charges.map((charge) => isBudget(charge) ? mutant.charge(charge) : charge))
          }
          SlidingWindows.prototype.refund = function(rule, key, state) {
            const charge = { rule, key }
            if (!isBudget(charge)) return refund.call(this, rule, key, state)
            if (mutant.keepsRefunds !== true) refund.call(this, rule, mutant.charge(charge).key, state)
          }
          const found = yield* Effect.flatMap(
            makeSocietyWorld(new Ledger()),
            (run) => search(run, (seed) => stepsOf(seed, 90), mutant.seed)
          ).pipe(Effect.ensuring(Effect.sync(() => {
            Object.assign(SlidingWindows.prototype, { refund, takeAll })
          })))
          isFound(found, mutant.what)
        }))
    }
  })
})

describe("rates", () => {
  layer(layerRates(layerPgliteTest))((it) => {
    it.effect("the definition finds a fixed window", () =>
      Effect.gen(function*() {
        const { takeAll } = SlidingWindows.prototype
        // Windows that were created before are switched to fixed ones, too.
        const fixed = new WeakMap<SlidingWindows, FixedWindows>()
        SlidingWindows.prototype.takeAll = function(charges) {
          let windows = fixed.get(this)
          if (windows === undefined) fixed.set(this, windows = new FixedWindows(this["now"]))
          return windows.takeAll(charges)
        }
        const found = yield* search(yield* makeRatesWorld(new Ledger()), (seed) => rateStepsOf(seed, 40)).pipe(
          Effect.ensuring(Effect.sync(() => {
            SlidingWindows.prototype.takeAll = takeAll
          }))
        )
        isFound(found, "a fixed window")
      }))
  })
})
