/** A message as history or an inbox shows it. */
export interface Row {
  readonly id: string
  readonly conversation_id: string
  readonly seq: number
  readonly sender: string
  readonly client_msg_id: string
}

/** What a sender knows of a send. */
export type Answer =
  /** Acknowledged: this is on disk for ever. */
  | { readonly _tag: "Stored"; readonly id: string; readonly seq: number }
  /** No answer came: stored as a whole or not at all. */
  | { readonly _tag: "Unknown" }
  /** It was not there after the crash that swallowed its answer: it must never turn up. */
  | { readonly _tag: "Absent" }

export interface Send {
  readonly clientMsgId: string
  readonly from: string
  readonly to: string
  answer: Answer
}

/** Everything that was asked of a server, and everything that it shows afterwards. */
export interface Observation {
  readonly sends: ReadonlyArray<Send>
  /** Of each conversation, the complete history as either side reads it, oldest first. */
  readonly histories: ReadonlyMap<string, ReadonlyArray<ReadonlyArray<Row>>>
  /** Of each agent, by handle, everything left to sync, oldest delivery first. */
  readonly inboxes: ReadonlyMap<string, ReadonlyArray<Row>>
  /** What was ever pushed to a socket. */
  readonly pushed: ReadonlyArray<Row>
  /** Ids that an agent has acknowledged, and that it may have: the acknowledgement was sent and not answered. */
  readonly acknowledged: ReadonlyMap<string, ReadonlySet<string>>
  readonly maybeAcknowledged: ReadonlyMap<string, ReadonlySet<string>>
}

/**
 * Says what is wrong with what a server shows: acknowledged messages lost, doubled or
 * changed, seqs that are not dense from 1, messages from nowhere, half-stored sends,
 * pushes without a commit, inboxes with holes, repeats, or in the wrong order.
 */
export const check = (seen: Observation): ReadonlyArray<string> => {
  const problems: Array<string> = []
  const stored = new Map<string, Row>()
  const byKey = new Map<string, Row>()
  const keyOf = (sender: string, clientMsgId: string) => `${sender} ${clientMsgId}`

  for (const [conversation, [one = [], ...others]] of seen.histories) {
    let expected = 0
    for (const row of one) {
      expected++
      if (row.seq !== expected) {
        problems.push(`${conversation} has seq ${row.seq} where ${expected} belongs`)
        expected = row.seq
      }
      if (stored.has(row.id)) problems.push(`${row.id} is stored twice`)
      const key = keyOf(row.sender, row.client_msg_id)
      if (byKey.has(key)) problems.push(`${key} is stored as ${byKey.get(key)?.id} and as ${row.id}`)
      stored.set(row.id, row)
      byKey.set(key, row)
    }
    for (const other of others) {
      const differs = other.length !== one.length ||
        other.some((row, i) => row.id !== one[i]?.id || row.seq !== one[i].seq)
      if (differs) problems.push(`the two sides of ${conversation} read different histories`)
    }
  }

  const sends = new Map(seen.sends.map((send) => [keyOf(send.from, send.clientMsgId), send]))
  for (const [key, { answer }] of sends) {
    const row = byKey.get(key)
    if (answer._tag === "Absent" && row !== undefined) problems.push(`${key} was absent and has turned up as ${row.id}`)
    if (answer._tag !== "Stored") continue
    if (row === undefined) problems.push(`${key} was acknowledged as ${answer.id} and is lost`)
    else if (row.id !== answer.id || row.seq !== answer.seq) {
      problems.push(`${key} was acknowledged as ${answer.id}, seq ${answer.seq}, and is ${row.id}, seq ${row.seq}`)
    }
  }
  for (const [key, row] of byKey) {
    if (!sends.has(key)) problems.push(`nobody sent ${row.id} (${key})`)
  }

  for (const push of seen.pushed) {
    const row = stored.get(push.id)
    if (row === undefined) problems.push(`${push.id} was pushed and is not stored`)
    else if (row.seq !== push.seq || row.conversation_id !== push.conversation_id) {
      problems.push(`${push.id} was pushed with seq ${push.seq} and is stored with ${row.seq}`)
    }
  }

  for (const [handle, inbox] of seen.inboxes) {
    const acknowledged = seen.acknowledged.get(handle)
    const maybe = seen.maybeAcknowledged.get(handle)
    const offered = new Set<string>()
    const last = new Map<string, number>()
    for (const row of inbox) {
      if (offered.has(row.id)) problems.push(`@${handle} is offered ${row.id} twice`)
      offered.add(row.id)
      if (acknowledged?.has(row.id) === true)
        problems.push(`@${handle} is offered ${row.id} again, acknowledged before`)
      const before = last.get(row.conversation_id) ?? 0
      if (row.seq <= before)
        problems.push(`@${handle} is offered seq ${row.seq} of ${row.conversation_id} after ${before}`)
      last.set(row.conversation_id, row.seq)
      const known = stored.get(row.id)
      if (known === undefined || known.seq !== row.seq)
        problems.push(`@${handle} is offered ${row.id}, which no history has`)
    }
    for (const [key, send] of sends) {
      const row = byKey.get(key)
      if (send.to !== handle || row === undefined) continue
      if (!offered.has(row.id) && acknowledged?.has(row.id) !== true && maybe?.has(row.id) !== true) {
        problems.push(`@${handle} is not offered ${row.id}, which is stored for it and not acknowledged`)
      }
    }
    for (const id of offered) {
      const row = stored.get(id)
      if (row !== undefined && sends.get(keyOf(row.sender, row.client_msg_id))?.to !== handle) {
        problems.push(`@${handle} is offered ${id}, which was not sent to it`)
      }
    }
  }
  return problems
}
