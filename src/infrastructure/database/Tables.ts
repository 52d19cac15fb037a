import type { Settings } from "#infrastructure/platform/Config"
import { Context, type Duration } from "effect"

/** The exported columns of a table, and its other columns (`without`), each with the reason why an export omits it. */
export interface Columns {
  readonly columns: ReadonlyArray<string>
  readonly without: Readonly<Record<string, string>>
}

/**
 * A file of an agent's export. It contains rows of one table (`t`) in the order of a key. Each row may be joined with a
 * row of another table (`j`). In all SQL, `$1` is the agent's id.
 */
export interface ExportFile extends Columns {
  /** The file name without the extension `.jsonl`. */
  readonly name: string
  readonly about: string
  /** The columns by which the rows are ordered, with their types. The key is unique among the rows of one agent. */
  readonly key: ReadonlyArray<readonly [column: string, type: "text" | "bigint"]>
  /** The SQL condition that selects the agent's rows. */
  readonly mine: string
  /** Set if no index finds the agent's rows. An export then reads the whole table, slice by slice. */
  readonly whole?: true
  /**
   * Set if the agent's rows are among the rows of its groups. An export then reads the rows group by group. The first
   * column of the key is the group.
   */
  readonly byGroup?: true
  /** How many rows one statement reads. */
  readonly slice: number
  /** The joined table. Each exported row contains the joined row as the property `as`. */
  readonly join?: Columns & { readonly table: string; readonly as: string; readonly on: string }
}

/** Reasons to omit a column that a reader of the export does not need. */
export const SELF = "always the agent"
export const SAME = "the same as in the row itself"

/** How many rows one statement of an export reads through an index. */
export const SMALL = 500
/** How many rows one statement of an export reads through an index if a row may have 32 KiB. */
export const LARGE = 100
/** How many rows one statement of an export reads from a table without a suitable index. */
export const WHOLE = 2_000

/** Describes rows that a job deletes some time after the time in one of their columns (`ExpirySweeps.ts`). */
export interface Expiry {
  /** The name of the job, which is also the label of its metrics. Several tables may share a job. */
  readonly job: string
  /** How often the job runs. All tables of a job must have the same period. */
  readonly every: Duration.Input
  /**
   * The column with a time in milliseconds, or with `null` in rows that are kept. An index must begin with this column,
   * or with the column in `only` followed by this column.
   */
  readonly column: string
  /** How many milliseconds after this time the rows are deleted; 0 if it is omitted. */
  readonly keptMs?: (config: Settings) => number
  /** An SQL condition that selects the rows. If it is omitted, the job handles all rows. */
  readonly only?: string
  /**
   * How far ahead of now `column` can be in a new row, in milliseconds. A row whose time is further ahead was written
   * before the clock was set back, or by a node whose clock is ahead. The row may be in use, so the job does not delete
   * it but sets its time to that of a new row.
   */
  readonly longestMs?: number
}

/** How old rows are deleted, or the reason why no job deletes rows (`kept`). */
export type Retention =
  | {
    readonly expires?: ReadonlyArray<Expiry>
    /**
     * Set if each row belongs to one message and is deleted together with the message. It is the SQL condition that
     * joins the row (`t`) with the message for one agent (`m`, which has the columns `conversation_id`, `seq`, `id` and
     * `agent_id`).
     */
    readonly withMessage?: string
    /** The names of other jobs that delete rows. The job `messages` is in `MessageRetention.ts`. */
    readonly jobs?: ReadonlyArray<string>
  }
  | { readonly kept: string }

interface Owned {
  readonly table: string
  readonly retention: Retention
}

/** A table with data of agents. */
export interface AgentTable extends Owned {
  /**
   * What the steps after the deletion of an account do with the existing rows: delete some, change some, or keep all.
   * The steps are in `DeletionsLive.ts` and in the services that it calls.
   */
  readonly deletion: "deletes" | "changes" | "keeps"
  readonly erasure: {
    /**
     * What an erasure removes from the table, and what it keeps there. The values are entries of the lists `removed`
     * and `remains` in `Erasure.ts`.
     */
    readonly removes: ReadonlyArray<string>
    readonly keeps: ReadonlyArray<string>
    /**
     * A statement that removes data of the agent `$1` from up to `$2` rows and returns each of these rows. An erasure
     * runs it until it returns no row.
     */
    readonly batch?: { readonly name: string; readonly text: string }
    /**
     * Set if an agent has few rows in the table, which are found by `agent_id`. One statement of an erasure deletes the
     * rows of all such tables. The value names the table's part of this statement.
     */
    readonly few?: string
  }
  /** Empty if the file of another table exports the rows by a join. */
  readonly exports: ReadonlyArray<ExportFile>
  /** The text columns that contain JSON. An export writes them as JSON values. */
  readonly json?: ReadonlyArray<string>
}

/** A table without data that an agent's export, deletion or erasure must handle. */
export interface ServerTable extends Owned {
  /** Why an export omits the table. The text is a line in `FORMAT.md` of the export. */
  readonly notExported: string
}

/**
 * A table of `schema/`, declared by the module that owns it. The owner is the module to whose domain the rows belong.
 * Other modules may write the table too.
 */
export type OwnedTable = AgentTable | ServerTable

export const isAgentTable = (table: OwnedTable): table is AgentTable => "exports" in table

/** All tables of the schema. `src/Tables.ts` lists the modules that own them. */
export class Tables extends Context.Service<Tables, ReadonlyArray<OwnedTable>>()("parley/database/Tables") {}
