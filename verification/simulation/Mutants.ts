import { directContext, renderMessage, sentMessage } from "#domain/messages/Message"
import type { LiveAgents } from "#domain/push/LiveAgents"
import { Effect } from "effect"
import type { WaitMutant } from "./Waits.ts"
import { type Mutant, turn } from "./World.ts"

/**
 * Mistakes that the batch statement once had or could have. Each mutant is the product's own statement with one passage
 * changed, or its own commit with one step moved. The checker must find every mutant.
 */

/** Replaces a passage. Fails if the passage is missing, so that a mutant that no longer applies is noticed. */
export const replacing = (text: string, from: string | RegExp, to: string): string => {
  const replaced = text.replace(from, () => to)
  if (replaced === text) throw new Error(`the statement no longer holds: ${String(from)}`)
  return replaced
}

/** Keys are not looked up, and no index refuses a known one. So a repeat is stored as a second message. */
export const keysNotLookedUp: Mutant & { readonly schema: string } = {
  text: (append) => replacing(append, /\(SELECT true FROM messages k[\s\S]*?\) IS TRUE AS known/, "false AS known"),
  schema: "DROP INDEX messages_once"
}

/** Keys are looked up, but no index refuses a key that another lane is storing at the same moment. */
export const keysInTheSnapshotAlone: Mutant & { readonly schema: string } = {
  text: (append) => append,
  schema: "DROP INDEX messages_once"
}

/**
 * Envelopes get their numbers as from an identity column, with a sequence for each inbox. A number is taken when the
 * statement runs, so the order of numbers can differ from the order of commits. The counters are correct at the commit,
 * so that only the order is wrong.
 */
export const numbersByIdentityColumn: Mutant & { readonly schema: string } = {
  text: (append) => {
    const numbered = replacing(
      append,
      "w.last_no + w.after - w.undelivered AS no",
      "next_no(w.recipient) AS no"
    )
    const unlocked = replacing(numbered, /ORDER BY n\.agent_id\s+FOR NO KEY UPDATE OF n/, "")
    return replacing(unlocked, /counted AS \([\s\S]*?\n\)/, "counted AS (SELECT 1)")
  },
  schema: `
    CREATE FUNCTION next_no(agent text) RETURNS bigint LANGUAGE sql VOLATILE AS
      $$ SELECT nextval(format('%I', 'no_' || agent)::regclass) $$;
    CREATE FUNCTION make_numbers() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN EXECUTE format('CREATE SEQUENCE %I', 'no_' || NEW.agent_id); RETURN NEW; END $$;
    CREATE TRIGGER make_numbers AFTER INSERT ON inboxes FOR EACH ROW EXECUTE FUNCTION make_numbers();
    CREATE FUNCTION count_envelope() RETURNS trigger LANGUAGE plpgsql AS
      $$ BEGIN
        UPDATE inboxes SET last_no = GREATEST(last_no, NEW.no), undelivered = undelivered + 1
        WHERE agent_id = NEW.recipient_id;
        RETURN NULL;
      END $$;
    CREATE CONSTRAINT TRIGGER count_envelope AFTER INSERT ON envelopes
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION count_envelope();`
}

/**
 * A wait acknowledges the messages of its answer before it answers. Messages of an answer that is lost are then never
 * delivered.
 */
export const acknowledgeBeforeTheAnswer: WaitMutant = {
  wait: (wait, { deliveries }) => (principal, ...rest) =>
    Effect.tap(wait(principal, ...rest), ({ rows }) => {
      const last = rows.at(-1)
      return last === undefined
        ? Effect.void
        : deliveries.acknowledgeThrough(
          principal.agentId,
          (JSON.parse(last) as { readonly delivery_id: string }).delivery_id
        )
    })
}

/** A wait first reads the inbox and then begins to listen. It misses messages that are committed in between. */
export const looksBeforeItListens: WaitMutant = {
  below: ({ deliveries, liveAgents }) => {
    const coming = new Map<string, Array<() => void>>()
    const long = Effect.repeat(turn, { times: 300 })
    return {
      liveAgents: {
        ...liveAgents,
        attach: (agentId, session) => {
          coming.set(agentId, [...coming.get(agentId) ?? [], () => liveAgents.attach(agentId, session)])
          return liveAgents.here(agentId)
        }
      },
      deliveries: {
        ...deliveries,
        page: (agentId, ...rest) =>
          Effect.tap(deliveries.page(agentId, ...rest), () => {
            const attaching = coming.get(agentId) ?? []
            coming.delete(agentId)
            return attaching.length === 0
              ? Effect.void
              : Effect.map(long, () => attaching.forEach((attach) => attach()))
          })
      }
    }
  }
}

/** Mistakes with tasks that were changed concurrently, or with messages that came meanwhile. */
export const tasks = {
  /** The last writer of a derived state overwrites the others. */
  versionNotTested: {
    advance_a2a_tasks: (text) =>
      replacing(text, "AND version = $2\n  RETURNING conversation_id", "AND version >= $2\n  RETURNING conversation_id")
  },
  /** One message more than was read counts as taken into account. */
  oneMessageTooFar: {
    advance_a2a_tasks: (text) => replacing(text, "SET through_seq = $3", "SET through_seq = $3 + 1")
  },
  /** An answer that names nothing completes the newest task. */
  newestFirst: {
    open_a2a_tasks: (text) => replacing(text, "ORDER BY seq LIMIT w.most", "ORDER BY seq DESC LIMIT w.most")
  },
  /** A reply to a later message of a task is not recognized as being about the task. */
  firstMessagesAlone: { open_a2a_tasks_with: (text) => replacing(text, "WHERE open AND", "WHERE false AND") },
  /** The delivery of a message to the called agent is not noticed. */
  deliveriesUnseen: { feed_progress: (text) => replacing(text, "e.delivered_at\n", "NULL::bigint AS delivered_at\n") }
} satisfies Readonly<Record<string, Mutant["statements"]>>

interface Input {
  readonly conv: string
  readonly sender: string
  readonly recipient: string
  readonly key: string
  readonly id: string
  readonly type: "text"
  readonly content: string
  readonly metadata: string
  readonly at: number
}

/** Messages are pushed to sockets after the statement has run and before the commit, which then fails. */
export const pushBeforeCommit = (actors: () => LiveAgents["Service"]): Mutant => ({
  failing: (run, params, sql) => {
    const inputs = JSON.parse(String(params[0])) as ReadonlyArray<Input>
    return sql.withTransaction(Effect.gen(function*() {
      const rows = (yield* run) as ReadonlyArray<
        { readonly i: number; readonly seq: number | null; readonly no: number | null }
      >
      for (const { i, no, seq } of rows) {
        if (no === null || seq === null) continue
        const { at, content, conv, id, key, metadata, recipient, sender, type } = inputs[i]!
        const [from] = yield* sql<{ readonly handle: string }>`SELECT handle FROM agents WHERE id = ${sender}`
        const rendered = renderMessage(
          sentMessage({ clientMsgId: key, type, content, metadata }, {
            id,
            conversationId: conv,
            seq,
            senderId: sender,
            createdAt: at
          }),
          directContext({ handle: from!.handle, displayName: null, deletedAt: null })
        )
        actors().push(recipient, { _tag: "Hint", inboxNo: no, messageId: id, senderId: sender, rendered })
      }
      return yield* Effect.fail("the commit failed")
    })).pipe(Effect.ignore)
  }
})
