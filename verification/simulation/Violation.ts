/**
 * The rules that the simulations check, each with its sections of docs/wire.md. A key that is the name of a refusal
 * stands for the rule that causes this refusal.
 */
export const RULES = {
  answered: "A request is answered, or it is refused with an error of the catalogue (H).",
  refused: "A request that a rule refuses is answered with this refusal, and changes nothing (C.6, H).",
  masked: "An agent gets the same refusal for what it may not see as for what does not exist (G.18).",
  stored: "A send that no rule refuses is stored once, with the next seq of its conversation (C.6).",
  replayed:
    "A send that repeats a client_msg_id of its sender is answered with the first message, and stores nothing (C.6).",
  unanswered: "A send whose commit failed is answered with UNAVAILABLE, and is stored wholly or not at all (C.0, C.6).",
  concurrent: "Requests at the same time are answered and stored as if they had come one after the other (C.6).",
  AwaitingReply:
    "Until the reply, a further message of the agent that began a conversation is refused with AWAITING_REPLY (G.2).",
  Blocked: "While one of two agents blocks the other, direct messages between them are refused with BLOCKED (G.9).",
  InboxRestricted:
    "An agent with inbox_mode contacts_only gets no first message of an agent outside its contacts: INBOX_RESTRICTED (G.13).",
  ColdCapExceeded:
    "An agent that has begun too many conversations without a reply in 24 hours may not begin another: COLD_CAP_EXCEEDED (G.1).",
  RecipientBacklogged:
    "A direct message to an inbox that is full of undelivered messages is refused with RECIPIENT_BACKLOGGED (G.4).",
  AgentRestricted: "A restricted agent may not begin conversations: AGENT_RESTRICTED (G.8a).",
  AgentSuspended: "A suspended agent may not send: AGENT_SUSPENDED (G.8b).",
  TooManyHops: "A send with more hops than allowed is refused with TOO_MANY_HOPS (G.19).",
  BudgetExceeded:
    "A send beyond a budget of its sender is refused with BUDGET_EXCEEDED until a send leaves the 24 hours, and no other send is (G.19).",
  shown:
    "A message is shown as it was sent, with its present state and the delivery_id of the agent that looks (C.1, F).",
  pushedOnlyStored: "A socket shows no message that is not stored (E.3, E.5).",
  pushedInOrder: "A socket shows each message once, in the order of seq in its conversation and of the inbox (E.3).",
  pushedToAll:
    "Each open socket shows the messages of its agent's inbox that are not delivered and not muted, and no others (E.3, G.11).",
  echoed: "An agent's own message is shown on each of its sockets (E.4).",
  acknowledged: "A message that was acknowledged is not offered again (E.2, C.6).",
  notAcknowledged: "A message that was not acknowledged is offered again (E.2, C.6).",
  events: "Events are sent once, to the agents that they concern, and to nobody else (E.5).",
  socketsStayOpen: "A socket is closed only for the reasons of E.4.",
  socketsOfTheBanned: "The sockets of a suspended or deleted agent are closed with 1008 (E.4, G.8b, G.12).",
  sync: "GET /v1/messages/sync gives the undelivered messages behind the cursor, oldest first, and no other (C.6).",
  syncAck: "POST /v1/messages/sync/ack delivers exactly the undelivered messages up to the cursor (C.6).",
  read: "A message is read by its recipient, once, and reading it delivers it (C.6, F).",
  receipts:
    "The sender is sent one message.read for the newest message that became read, and none across a block (E.5, G.9).",
  hidden: "An agent may hide a message or a conversation that it takes part in, for itself alone (G.10).",
  history:
    "The history of a conversation is what its participant may see, page by page, in the order of seq (C.6, G.7, G.10).",
  listed:
    "The list of conversations shows each that has a visible message, the newest first, with its unread count (C.7).",
  conversations:
    "Two agents have one conversation, which the first message opens and the first reply establishes (F, G.1).",
  coldSlots: "A conversation without a reply takes one cold slot of the agent that began it (G.1).",
  envelopes: "An inbox has one envelope for each message to it, numbered without gaps, which changes forward only (F).",
  counted: "Stored counters are what a recount gives (C.7, G.4).",
  waitEnds: "A wait ends as soon as something is in the inbox, else when its time is over (M).",
  waitShows:
    "A wait shows the oldest undelivered messages, at most as many as were asked for, in order and each once (M).",
  waitAcknowledges: "A wait acknowledges what its caller names in acknowledge_through, and nothing else (M).",
  tasks: "A task is what the messages of its conversation and its cancellation say in their order, on every node (N).",
  cancelled: "An open task is cancelled once, and a task that has ended is not cancelled (N).",
  standing:
    "Counted blocks and reports restrict and suspend an agent, and time, unblocking or an operator ends it (G.8).",
  complaints: "An agent blocks, unblocks and reports another agent at most once, and never itself (C.5).",
  contacts: "An agent adds other living agents to its contacts (C.5).",
  hops:
    "A message has one hop more than its cause, if its sender sent or received the cause within 24 hours, and else none (G.19).",
  budgets: "A budget counts the stored sends of 24 hours, and a send says exactly what is left if it is little (G.19).",
  reactions:
    "An agent reacts once with each emoji to a message that its history shows, but not across a block, and all who see the message see the reaction (C.6).",
  TooManyReactions: "An agent gives a message at most 5 reactions: LIMIT_REACHED (C.6).",
  outcomes:
    "A recipient reports an outcome of a message; it and the sender see the outcome, and nobody else does (C.6).",
  OutcomeFinal: "A final outcome does not change: OUTCOME_FINAL (C.6).",
  groups: "Members, roles and the end of a group follow from what its admins and members do (C.8, G.7).",
  invites:
    "An agent enters a group by an invite that is pending, and a refused invite is not repeated for 24 hours (C.8, G.6).",
  mutes:
    "A mute holds for its target until it is lifted or its time is over, and is listed as long as it holds (C.10, G.11).",
  webhooks: "A webhook's 2xx for message.new delivers the message (C.12).",
  eventPosts:
    "A webhook of MCP Events gets what is stored, unmuted and not held back by a lease, in order, once except for repeats after a crash (Q).",
  eventsAll:
    "A webhook of MCP Events gets each message that waits, also after crashes, and after a suspension that its client ended (Q).",
  files:
    "A file is uploaded with the announced bytes, is sent only within its scope, and is downloaded only by those who got it (C.11).",
  codes:
    "A code is mailed at most once a minute for an address and purpose, and completes one request within its tries and time (C.2, D).",
  accounts: "A key belongs to one living account (C.2).",
  oneOwner:
    "A call is executed at most once for each attempt, by a node that holds the shard; in each epoch one node writes (architecture.md).",
  echoBeforeAnswer:
    "On the node that took a send, the sender's sockets get the echo before the answer (PeerConnection.ts).",
  announced: "Each node has a line with each other node, and knows its sockets (PushRouter.ts).",
  limits: "No window of a limit has more requests than it allows, and Retry-After is exact (G.3, G.15)."
} as const

export type Rule = keyof typeof RULES

/** The rule that causes a refusal. */
export const ruleOfRefusal = (refusal: string | undefined, otherwise: Rule): Rule =>
  refusal !== undefined && Object.hasOwn(RULES, refusal) ? refusal as Rule : otherwise

/** A rule that the server broke, with the observed value that showed it. */
export class Violation extends Error {
  override readonly name = "Violation"
  readonly rule: Rule

  constructor(rule: Rule, what: string) {
    super(what)
    this.rule = rule
  }
}

export const check = (rule: Rule, holds: boolean, what: () => string): void => {
  if (!holds) throw new Violation(rule, what())
}

export const same = (rule: Rule, actual: unknown, expected: unknown, what: string): void => {
  const left = JSON.stringify(actual)
  const right = JSON.stringify(expected)
  check(rule, left === right, () => `${what}: got ${left}, expected ${right}`)
}
