import type { Settings } from "#infrastructure/platform/Config"
import { Context, type Duration } from "effect"

/** The exported columns of a table, and its other columns, each with the reason why an export leaves it out. */
export interface Columns {
  readonly columns: ReadonlyArray<string>
  readonly without: Readonly<Record<string, string>>
}

/**
 * A file of an agent's export: rows of one table (`t`) in the order of a key, each perhaps joined with a row of another
 * table (`j`). In all SQL, `$1` is the agent's id.
 */
export interface ExportFile extends Columns {
  /** Without the ending `.jsonl`. */
  readonly name: string
  readonly about: string
  /** The order of the rows: columns and their types. Unique among the rows of one agent. */
  readonly key: ReadonlyArray<readonly [column: string, type: "text" | "bigint"]>
  /** The SQL condition that selects the agent's rows. */
  readonly mine: string
  /** Set if no index finds the agent's rows. The whole table is then read, slice by slice. */
  readonly whole?: true
  /**
   * Set if the agent's rows are among those of its groups. They are read group by group. The first column of the key is
   * the group.
   */
  readonly byGroup?: true
  /** How many rows one statement reads. */
  readonly slice: number
  /** The joined table. Each row contains the joined row under `as`. */
  readonly join?: Columns & { readonly table: string; readonly as: string; readonly on: string }
}

/** Reasons to leave out a column of which a reader of the export need not know. */
export const SELF = "always the agent"
export const SAME = "the same as in the row itself"

/**
 * How many rows one statement of an export reads: of an index, of an index with rows of up to 32 KiB each, and of a
 * whole table.
 */
export const SMALL = 500
export const LARGE = 100
export const WHOLE = 2_000

/** Rows that a job removes some time after the time in one of their columns (`ExpirySweeps.ts`). */
export interface Expiry {
  /** The job, which is also the label of its metrics. Tables may share a job. */
  readonly job: string
  /** The period of the job, the same in all tables of the job. */
  readonly every: Duration.Input
  /** A time in milliseconds; `null` in rows that stay. An index begins with this column, or with `only` and it. */
  readonly column: string
  /** How many milliseconds after this time the rows are removed; 0 if it is omitted. */
  readonly keptMs?: (config: Settings) => number
  /** An SQL condition for the rows; all rows if it is omitted. */
  readonly only?: string
  /**
   * How far ahead of now `column` can be in a new row, in milliseconds. A row whose time is further ahead is from
   * before the clock was set back, or from a node whose clock is ahead. It may be in use, so the job changes its time
   * to that of a new row.
   */
  readonly longestMs?: number
}

/** How old rows are removed. `kept` is the reason why no job removes any. */
export type Retention =
  | {
    readonly expires?: ReadonlyArray<Expiry>
    /**
     * Set if each row is about one message, and is removed together with the message: the SQL condition that joins the
     * row (`t`) with the message for one agent (`m`: `conversation_id`, `seq`, `id`, `agent_id`).
     */
    readonly withMessage?: string
    /** The names of other jobs that remove rows. The job `messages` is `MessageRetention.ts`. */
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
   * What the steps that follow the end of an account do with the rows that exist: delete some, change some, or nothing.
   * The steps themselves are in `DeletionsLive.ts` and in the services that it calls.
   */
  readonly deletion: "deletes" | "changes" | "keeps"
  readonly erasure: {
    /**
     * What an erasure removes from the table, and what it leaves: entries of the lists `removed` and `remains` in
     * `Erasure.ts`.
     */
    readonly removes: ReadonlyArray<string>
    readonly keeps: ReadonlyArray<string>
    /**
     * A statement that removes data of the agent `$1` from up to `$2` rows and returns each of these rows. An erasure
     * runs it until it returns no row.
     */
    readonly batch?: { readonly name: string; readonly text: string }
    /**
     * Set if the agent has few rows, by `agent_id`. One statement of an erasure deletes the rows of all such tables.
     * The name is that of the table's part of the statement.
     */
    readonly few?: string
  }
  /** Empty if each row is exported by the file of another table, which joins it. */
  readonly exports: ReadonlyArray<ExportFile>
  /** The columns with JSON as text, which an export shows as JSON. */
  readonly json?: ReadonlyArray<string>
}

/** A table without data that an agent's export, deletion or erasure must handle. */
export interface ServerTable extends Owned {
  /** Why an export leaves the table out; a line of the export's `FORMAT.md`. */
  readonly notExported: string
}

/**
 * A table of `schema/`, as its owner declares it: the module to whose domain the rows belong. Other modules may write
 * the table too.
 */
export type OwnedTable = AgentTable | ServerTable

export const isAgentTable = (table: OwnedTable): table is AgentTable => "exports" in table

/** All tables of the schema. `src/Tables.ts` lists the modules that own them. */
export class Tables extends Context.Service<Tables, ReadonlyArray<OwnedTable>>()("parley/database/Tables") {}
