import { StorageUnavailable } from "#infrastructure/files/Blobs"
import { Name } from "#infrastructure/wire/Name"
import { DateTimeString, HandleInput, Storable } from "#infrastructure/wire/Text"
import { UncachedErrors } from "#infrastructure/wire/Uncached"
import { NotFound } from "#infrastructure/wire/WireError"
import { Conflict } from "#interfaces/operator/Conflict"
import { Role } from "#interfaces/operator/Role"
import { Schema } from "effect"
import { HttpApiEndpoint, HttpApiGroup } from "effect/http-api"
import { ConsoleAuthorization, OwnAudit } from "./ConsoleAuthorization.ts"

/** The response with a link, which names its role, so that a server that does not know roles is noticed. */
export const Link = Schema.Struct({ url: Schema.String, role: Role, expires_at: DateTimeString })

/** The name of a person. The audit log uses some names for the server itself, and an ending for the role. */
const Person = Name(1, 100).check(
  Schema.makeFilter(
    (name) => !/^(?:server|enforcement)$/i.test(name) && !/\((?:viewer|moderator|operator)\)$/i.test(name),
    {
      message: "must be no name that the audit log uses itself, and must not end with a role"
    }
  )
)
/** The response with a new program token and the URL of its API. */
export const ProgramToken = Schema.Struct({
  id: Schema.String,
  token: Schema.String,
  url: Schema.String,
  role: Role,
  expires_at: DateTimeString
})
/** The response with a token that is valid for a minute, and the URLs of the local server and of the nodes. */
export const CommandToken = Schema.Struct({
  url: Schema.String,
  others: Schema.Array(Schema.String),
  token: Schema.String
})
export const EffectiveSettings = Schema.Array(Schema.Struct({
  name: Schema.String,
  value: Schema.String,
  isDefault: Schema.Boolean,
  origin: Schema.String,
  about: Schema.String
}))
export const MovedCounters = Schema.Struct({ conversations: Schema.Int, inboxes: Schema.Int })
export const BackedUp = Schema.Struct({
  file: Schema.String,
  bytes: Schema.Int,
  entries: Schema.Int,
  files: Schema.Boolean,
  longest_stop_ms: Schema.Int
})

/**
 * The endpoints of the operators' API that only the command line may call, over the Unix socket in DATA_DIR or in its
 * own process. They create credentials, write files on the server's machine, or read messages. Therefore sessions and
 * program tokens cannot call them, and `ConsoleApi` does not contain them.
 */
export class CommandsApi extends HttpApiGroup.make("commands")
  .add(
    HttpApiEndpoint.post("makeLink", "/console/api/links", {
      payload: Schema.Struct({ person: Schema.optionalKey(Person), role: Schema.optionalKey(Role) }),
      success: Link
    }),
    HttpApiEndpoint.post("makeToken", "/console/api/tokens", {
      payload: Schema.Struct({
        name: Name(1, 100),
        role: Schema.optionalKey(Role),
        days: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 365 }))
      }),
      success: ProgramToken
    }),
    HttpApiEndpoint.post("makeCommandToken", "/console/api/command-tokens", {
      success: CommandToken
    }),
    HttpApiEndpoint.post("config", "/console/api/config", { success: EffectiveSettings }),
    HttpApiEndpoint.post("moveCounters", "/console/api/counters", { success: MovedCounters }),
    // An export begins with one call of `export`. Calls of the next two endpoints follow until everything is read.
    HttpApiEndpoint.post("export", "/console/api/exports", {
      payload: Schema.Struct({ handle: HandleInput }),
      success: Schema.Struct({ agent: Schema.String, handle: Schema.String, schema: Schema.String }),
      error: NotFound
    }),
    HttpApiEndpoint.post("exportPage", "/console/api/exports/:agent/:file", {
      params: { agent: Storable, file: Storable },
      payload: Schema.Struct({ after: Schema.NullOr(Schema.Array(Schema.Union([Storable, Schema.Finite]))) }),
      success: Schema.Unknown,
      error: NotFound
    }),
    HttpApiEndpoint.post("exportPart", "/console/api/exports/:agent/:file/bytes", {
      params: { agent: Storable, file: Storable },
      payload: Schema.Struct({ from: Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)) }),
      success: Schema.Unknown,
      error: StorageUnavailable
    }),
    HttpApiEndpoint.post("backup", "/console/api/backups", {
      payload: Schema.Struct({ target: Storable.check(Schema.isPattern(/^\//), Schema.isMaxLength(4_096)) }),
      success: BackedUp,
      error: Conflict
    }).annotate(OwnAudit, true)
  )
  .middleware(ConsoleAuthorization)
  .middleware(UncachedErrors)
{}
