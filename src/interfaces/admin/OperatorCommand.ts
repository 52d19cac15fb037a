import { Name } from "#infrastructure/wire/Name"
import { Storable, Text } from "#infrastructure/wire/Text"
import { AccountStatus } from "#interfaces/operator/AgentAdmin"
import { Reason } from "#interfaces/operator/AuditLog"
import { ReportState } from "#interfaces/operator/Reports"
import { Data, Schema } from "effect"

/** The operating system's user who gives a command. */
const Who = Text(1, 200)
const Limit = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 1_000 }))
const Handle = Storable.check(Schema.isMaxLength(100))
const Id = Storable.check(Schema.isMaxLength(100))

/** The commands of operators, whether a running server or the command-line process carries them out. */
export const OperatorCommand = Schema.Union([
  Schema.TaggedStruct("Agents", {
    limit: Limit,
    /** Null for every status. */
    status: Schema.NullOr(AccountStatus),
    /** Null for the first page. */
    cursor: Schema.NullOr(Schema.String.check(Schema.isMaxLength(1_000))),
    operator: Who
  }),
  Schema.TaggedStruct("Show", { handle: Handle, operator: Who }),
  Schema.TaggedStruct("Suspend", { handle: Handle, operator: Who, reason: Reason }),
  Schema.TaggedStruct("Restore", { handle: Handle, operator: Who, reason: Reason }),
  Schema.TaggedStruct("Create", {
    handles: Schema.Array(Handle).check(Schema.isMinLength(1), Schema.isMaxLength(1_000)),
    email: Schema.NullOr(Storable),
    displayName: Schema.NullOr(Storable),
    operator: Who
  }),
  Schema.TaggedStruct("Reports", {
    limit: Limit,
    /** Null for all states. */
    state: Schema.NullOr(ReportState),
    operator: Who
  }),
  Schema.TaggedStruct("DeadWebhooks", { limit: Limit, operator: Who }),
  Schema.TaggedStruct("Audit", {
    limit: Limit,
    handle: Schema.NullOr(Handle),
    /** Only actions of this operator; null for all operators. */
    by: Schema.NullOr(Who),
    /** Whether to include actions that only read. */
    looks: Schema.Boolean,
    operator: Who
  }),
  Schema.TaggedStruct("Restored", { operator: Who }),
  Schema.TaggedStruct("ConsoleLink", { operator: Who }),
  Schema.TaggedStruct("ConsoleToken", {
    name: Name(1, 100),
    days: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 365 })),
    operator: Who
  }),
  /**
   * Returns what one call of the operators' API needs: the URLs of the local server and of the nodes, and a token for a
   * minute. The name stays, because a command line and a server of different versions exchange it.
   */
  Schema.TaggedStruct("Errand", { operator: Who }),
  Schema.TaggedStruct("ConsoleSessions", { operator: Who }),
  Schema.TaggedStruct("EndConsoleAccess", { id: Id, operator: Who }),
  Schema.TaggedStruct("Erase", { handle: Handle, operator: Who, reason: Reason }),
  /** Begins an export of everything that is held about an agent. The next two commands read it. */
  Schema.TaggedStruct("Export", { handle: Handle, operator: Who }),
  Schema.TaggedStruct("ExportPage", {
    agent: Id,
    file: Id,
    after: Schema.NullOr(Schema.Array(Schema.Union([Storable, Schema.Finite])))
  }),
  Schema.TaggedStruct("ExportPart", { agent: Id, file: Id, from: Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)) }),
  /** Writes a backup of a server's own database and files. `target` is an absolute path. */
  Schema.TaggedStruct("Backup", {
    target: Storable.check(Schema.isPattern(/^\//), Schema.isMaxLength(4_096)),
    operator: Who
  }),
  Schema.TaggedStruct("Config", {})
])
export type OperatorCommand = typeof OperatorCommand.Type

/** A command that cannot be carried out, with a message for the operator. Nothing was changed. */
export class OperatorRefused extends Data.TaggedError("OperatorRefused")<{ readonly message: string }> {}

/** An answer in two forms: text for a person, and data for a program. */
export const OperatorAnswer = Schema.Struct({ text: Schema.String, data: Schema.Json })
export type OperatorAnswer = typeof OperatorAnswer.Type
