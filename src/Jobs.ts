import { Deletions } from "#domain/agents/Deletions"
import { Attachments } from "#domain/attachments/Attachments"
import { Avatars } from "#domain/avatars/Avatars"
import { MessageRetention } from "#domain/conversations/MessageRetention"
import { Enforcement } from "#domain/enforcement/Enforcement"
import { WordIndex } from "#domain/search/WordIndex"
import { WebhookActors } from "#domain/webhooks/WebhookActors"
import { expirySweeps } from "#infrastructure/cluster/ExpirySweeps"
import { job } from "#infrastructure/cluster/Job"
import { Vacuum } from "#infrastructure/database/Vacuum"
import { TaskPushes } from "#interfaces/a2a/TaskPushes"
import { Tasks } from "#interfaces/a2a/Tasks"
import { EventSubscriptions } from "#interfaces/mcp/events/EventSubscriptions"
import { Announcements } from "#interfaces/operator/Announcements"
import { ErasedFiles } from "#interfaces/operator/ErasedFiles"
import { BacklogGauges } from "#interfaces/service/BacklogGauges"
import { Effect, Layer } from "effect"
import { tables } from "./Tables.ts"

/**
 * The periodic jobs. The last jobs delete expired rows from the tables that declare an expiry. In a cluster, each job
 * runs in one process for all processes (wire.md G.12, G.17a).
 */
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
  job({ name: "announcements", every: "10 seconds", batch: Effect.flatMap(Announcements, ({ sweep }) => sweep) }),
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
  job({ name: "uploads", every: "10 minutes", batch: Effect.flatMap(Attachments, ({ sweep }) => sweep) }),
  job({ name: "messages", every: "10 minutes", batch: Effect.flatMap(MessageRetention, ({ sweep }) => sweep) }),
  job({ name: "message_words", every: "5 seconds", batch: Effect.flatMap(WordIndex, ({ step }) => step) }),
  job({ name: "message_words_gone", every: "1 hour", batch: Effect.flatMap(WordIndex, ({ sweep }) => sweep) }),
  job({ name: "a2a_tasks", every: "1 hour", batch: Effect.flatMap(Tasks, ({ sweep }) => sweep) }),
  job({ name: "a2a_conversations", every: "1 hour", batch: Effect.flatMap(Tasks, ({ forget }) => forget) }),
  job({ name: "a2a_push_configs", every: "1 hour", batch: Effect.flatMap(TaskPushes, ({ retire }) => retire) }),
  job({ name: "files", every: "1 hour", batch: Effect.flatMap(Attachments, ({ retire }) => retire) }),
  job({ name: "avatars", every: "1 hour", batch: Effect.flatMap(Avatars, ({ sweep }) => sweep) }),
  Layer.effectDiscard(Effect.flatMap(expirySweeps(tables), Effect.forEach((sweep) => Layer.build(job(sweep)))))
)
