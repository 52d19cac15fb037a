import { documented } from "#infrastructure/http/Documented"
import { Limit } from "#infrastructure/wire/Page"
import { DateTimeString, HandleInput, Text } from "#infrastructure/wire/Text"
import { NotFound } from "#infrastructure/wire/WireError"
import { Conflict } from "#interfaces/operator/Conflict"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { ConsoleAuthorization, Needs } from "./ConsoleAuthorization.ts"

/** How many characters an announcement has. */
const AnnouncedText = Text(1, 4_000).check(
  Schema.makeFilter((text) => text.trim() !== "", { message: "needs a visible character" })
)

const AnnouncementRow = Schema.Struct({
  id: Schema.String,
  text: Schema.String,
  at: DateTimeString,
  told: Schema.Int,
  finished_at: Schema.NullOr(DateTimeString)
}).annotate({ identifier: "Announcement" })
export const AnnouncementsPage = Schema.Struct({
  announcements: Schema.Array(AnnouncementRow),
  next_cursor: Schema.NullOr(Schema.String)
})

const row = {
  id: "ann_0f1e2d3c4b5a6978",
  text: "This server is down on Sunday from 10 to 11 UTC.",
  at: "2026-11-22T09:00:00.000Z",
  told: 0,
  finished_at: null
} as const

/** The endpoints for announcements (wire.md T). */
export class AnnouncementsApi extends HttpApiGroup.make("announcements")
  .add(
    HttpApiEndpoint.get("announcements", "/console/api/announcements", {
      query: { limit: Schema.optionalKey(Limit), cursor: Schema.optionalKey(Schema.String) },
      success: AnnouncementsPage
    }).annotateMerge(documented({
      summary: "List announcements",
      description: "Lists what was announced to all agents, the newest first, with the number of agents told so far.",
      answer: { announcements: [row], next_cursor: null }
    })),
    HttpApiEndpoint.post("announce", "/console/api/announcements", {
      payload: Schema.Struct({ text: AnnouncedText }),
      success: AnnouncementRow,
      error: Conflict
    }).annotateMerge(documented({
      summary: "Announce something to all agents",
      description:
        "Sends a system message to each agent, in its direct conversation with `system`. A job sends them, once each.",
      body: { text: row.text },
      answer: row
    })).annotate(Needs, "moderator"),
    HttpApiEndpoint.post("tell", "/console/api/agents/:handle/tell", {
      params: { handle: HandleInput },
      payload: Schema.Struct({ text: AnnouncedText }),
      success: Schema.Struct({ ok: Schema.Literal(true), message: Schema.String }),
      error: [NotFound, Conflict]
    }).annotateMerge(documented({
      summary: "Tell one agent something",
      description: "Sends a system message to one agent, in its direct conversation with `system`.",
      parameters: { handle: "nina" },
      body: { text: "Your webhook has failed since Monday." },
      answer: { ok: true, message: "@nina is told." }
    })).annotate(Needs, "moderator")
  )
  .middleware(ConsoleAuthorization)
  .annotateMerge(OpenApi.annotations({ title: "Announcements", description: "What operators tell agents." }))
{}
