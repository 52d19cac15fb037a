import { Deletions } from "#domain/agents/Deletions"
import { Attachments } from "#domain/attachments/Attachments"
import { Avatars } from "#domain/avatars/Avatars"
import { MessageRetention } from "#domain/conversations/MessageRetention"
import { Enforcement } from "#domain/enforcement/Enforcement"
import { Groups } from "#domain/groups/Groups"
import { sweepIdempotencyKeys } from "#domain/idempotency/Idempotency"
import { Mutes } from "#domain/mutes/Mutes"
import { AuthorizationRequests } from "#domain/oauth/AuthorizationRequests"
import { AddressLimits } from "#domain/registration/AddressLimits"
import { Codes } from "#domain/registration/Codes"
import { Replies } from "#domain/replies/Replies"
import { WordIndex } from "#domain/search/WordIndex"
import { WebhookActors } from "#domain/webhooks/WebhookActors"
import { job } from "#infrastructure/cluster/Job"
import { Vacuum } from "#infrastructure/database/Vacuum"
import { TaskPushes } from "#interfaces/a2a/TaskPushes"
import { Tasks } from "#interfaces/a2a/Tasks"
import { EventSubscriptions } from "#interfaces/mcp/events/EventSubscriptions"
import { ErasedFiles } from "#interfaces/operator/ErasedFiles"
import { BacklogGauges } from "#interfaces/service/BacklogGauges"
import { Effect, Layer } from "effect"

/** The periodic jobs. In a cluster, one process runs each job for all processes (wire.md G.12, G.17a). */
export const layer = Layer.mergeAll(
  job({ name: "deletions", every: "30 seconds", batch: Effect.flatMap(Deletions, ({ sweep }) => sweep) }),
  job({ name: "recounts", every: "15 seconds", batch: Effect.flatMap(Enforcement, ({ sweep }) => sweep) }),
  job({ name: "webhook_outbox", every: "5 seconds", batch: Effect.flatMap(WebhookActors, ({ wakeDue }) => wakeDue) }),
  job({ name: "backlog", every: "1 minute", batch: Effect.flatMap(BacklogGauges, ({ count }) => count) }),
  job({ name: "vacuum", every: "1 minute", batch: Effect.flatMap(Vacuum, ({ step }) => step) }),
  job({
    name: "event_subscriptions",
    every: "1 minute",
    batch: Effect.flatMap(EventSubscriptions, ({ sweep }) => sweep)
  }),
  job({ name: "erased_files", every: "1 minute", batch: Effect.flatMap(ErasedFiles, ({ sweep }) => sweep) }),
  job({
    name: "webhooks_abandoned",
    every: "10 minutes",
    batch: Effect.flatMap(WebhookActors, ({ abandon }) => abandon)
  }),
  job({
    name: "webhooks_deleted",
    every: "10 minutes",
    batch: Effect.flatMap(WebhookActors, ({ sweepDeleted }) => sweepDeleted)
  }),
  job({
    name: "webhooks_delivered",
    every: "10 minutes",
    batch: Effect.flatMap(WebhookActors, ({ sweepDelivered }) => sweepDelivered)
  }),
  job({
    name: "webhooks_dead",
    every: "10 minutes",
    batch: Effect.flatMap(WebhookActors, ({ sweepDead }) => sweepDead)
  }),
  job({ name: "codes", every: "10 minutes", batch: Effect.flatMap(Codes, ({ sweep }) => sweep) }),
  job({ name: "address_attempts", every: "10 minutes", batch: Effect.flatMap(AddressLimits, ({ sweep }) => sweep) }),
  job({ name: "idempotency_keys", every: "10 minutes", batch: sweepIdempotencyKeys }),
  job({ name: "oauth", every: "10 minutes", batch: Effect.flatMap(AuthorizationRequests, ({ sweep }) => sweep) }),
  job({ name: "uploads", every: "10 minutes", batch: Effect.flatMap(Attachments, ({ sweep }) => sweep) }),
  job({ name: "replies", every: "1 minute", batch: Effect.flatMap(Replies, ({ sweep }) => sweep) }),
  job({ name: "messages", every: "10 minutes", batch: Effect.flatMap(MessageRetention, ({ sweep }) => sweep) }),
  job({ name: "message_words", every: "5 seconds", batch: Effect.flatMap(WordIndex, ({ step }) => step) }),
  job({ name: "message_words_gone", every: "1 hour", batch: Effect.flatMap(WordIndex, ({ sweep }) => sweep) }),
  job({ name: "a2a_tasks", every: "1 hour", batch: Effect.flatMap(Tasks, ({ sweep }) => sweep) }),
  job({ name: "a2a_conversations", every: "1 hour", batch: Effect.flatMap(Tasks, ({ forget }) => forget) }),
  job({ name: "a2a_push_configs", every: "1 hour", batch: Effect.flatMap(TaskPushes, ({ retire }) => retire) }),
  job({ name: "files", every: "1 hour", batch: Effect.flatMap(Attachments, ({ retire }) => retire) }),
  job({ name: "avatars", every: "1 hour", batch: Effect.flatMap(Avatars, ({ sweep }) => sweep) }),
  job({ name: "mutes", every: "1 hour", batch: Effect.flatMap(Mutes, ({ sweep }) => sweep) }),
  job({ name: "group_refusals", every: "1 hour", batch: Effect.flatMap(Groups, ({ sweepRefusals }) => sweepRefusals) }),
  job({
    name: "silent_group_changes",
    every: "1 hour",
    batch: Effect.flatMap(Groups, ({ sweepSilentChanges }) => sweepSilentChanges)
  })
)
