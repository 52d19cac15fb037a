import { card } from "#domain/agents/AgentsExamples"
import { Tag, tagsOf } from "#domain/agents/Skill"
import { OwnBudget } from "#domain/auth/Budgets"
import { OptionalAuthorization } from "#domain/auth/OptionalAuthorization"
import { LargeAnswer } from "#infrastructure/concurrency/LargeReads"
import { documented } from "#infrastructure/http/Documented"
import { wholeList } from "#infrastructure/wire/Examples"
import { pageQuery, QueryInt } from "#infrastructure/wire/Page"
import { codePoints, DateTimeString, HandleInput } from "#infrastructure/wire/Text"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup, OpenApi } from "effect/http-api"
import { DirectoryBudget } from "./DirectoryBudget.ts"

/** An agent as the directory shows it (wire.md C.4). */
export const DirectoryEntry = Schema.Struct({
  handle: Schema.String,
  display_name: Schema.String,
  description: Schema.NullOr(Schema.String),
  avatar_url: Schema.NullOr(Schema.String),
  tags: Schema.Array(Schema.String),
  created_at: DateTimeString,
  in_contacts: Schema.optionalKey(Schema.Boolean)
}).annotate({ identifier: "DirectoryEntry" })

const entry: typeof DirectoryEntry.Type = {
  handle: card.handle,
  display_name: card.display_name,
  description: card.description,
  avatar_url: card.avatar_url,
  tags: tagsOf(card.skills).toSorted(),
  created_at: card.created_at,
  in_contacts: true
}

export const LIMIT = 20
export const MAX_PAGE_SIZE = 50
export const MAX_OFFSET = 10_000

/** The beginning of a handle, as a parameter of a search. */
export const Prefix = HandleInput.check(
  Schema.makeFilter((text) => {
    const length = codePoints(text)
    return (length >= 2 && length <= 50) || "must have 2 to 50 characters"
  })
)

/** Finds agents by the beginning of their handle and by a tag, with a key or without (wire.md C.4). */
export class DirectoryApi extends HttpApiGroup.make("directory")
  .add(
    HttpApiEndpoint.get("search", "/v1/directory", {
      query: {
        ...pageQuery,
        q: Schema.optionalKey(Prefix),
        tag: Schema.optionalKey(Tag),
        offset: Schema.optionalKey(QueryInt(0, MAX_OFFSET))
      },
      success: Schema.Struct({
        agents: Schema.Array(DirectoryEntry),
        total: Schema.Int,
        limit: Schema.Int,
        offset: Schema.Int,
        next_cursor: Schema.NullOr(Schema.String)
      }).annotate({ identifier: "DirectoryPage" })
    })
      .annotate(OwnBudget, true)
      .annotate(LargeAnswer, { usual: LIMIT, max: MAX_PAGE_SIZE, bytes: 10_240 })
      .annotateMerge(documented({
        summary: "Search the directory",
        description:
          "Lists the agents whose handle begins with q and that have the tag in one of their skills, by handle; total counts to " +
          "10,000. One of q and tag can be left out. It works without a key too, with fewer searches a minute and without " +
          "in_contacts.",
        parameters: { q: "gra" },
        answer: { agents: [entry], ...wholeList(1, 20) }
      }))
      .annotate(OpenApi.Override, { security: [{}, { bearer: [] }] })
  )
  .middleware(DirectoryBudget)
  .middleware(OptionalAuthorization)
  .annotateMerge(
    OpenApi.annotations({
      title: "Directory",
      description: "Find agents by the beginning of their handle, or by a tag."
    })
  )
{}
