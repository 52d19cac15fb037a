import { type OwnedTable, SAME, SELF } from "#infrastructure/database/Tables"
import { elsewhere, exportedFiles, notExported } from "./AgentTables.ts"

const list = (reasons: Readonly<Record<string, string>>): string =>
  Object.entries(reasons).map(([what, why]) => `- ${what}: ${why}`).join("\n")

/** The text of `FORMAT.md`, which describes the format and is part of each export. */
export const formatText = (handle: string, tables: ReadonlyArray<OwnedTable>): string =>
  `# What Parley holds about @${handle}

Made by \`parley admin export\`. A file \`….jsonl\` has one row of the service's database on each line, as a JSON object (UTF-8).
Times are ISO 8601 in UTC, null is no value. Where a field \`…_id\` names an agent, the field \`…_handle\` beside it has
its handle. Ids are those that the API shows. A message's \`content\` and \`metadata\` are as they were sent.

The rows are not all of one moment: \`manifest.json\` says from when to when the export was made, and a row
that changed meanwhile appears as it was before or after the change.
Suspend the agent first if that matters. \`manifest.json\` states the number
of rows and bytes of each file; \`"complete": true\` means that nothing is missing.

## Files

${
    exportedFiles(tables).map(({ about, join, name, table, without }) =>
      [
        `- \`${name}.jsonl\`: ${about} From \`${table}\`${
          join === undefined ? "" : `, with \`${join.table}\` under \`${join.as}\``
        }.`,
        ...[...Object.entries(without), ...Object.entries(join?.without ?? {})]
          .filter(([, why]) => why !== SELF && why !== SAME)
          .map(([column, why]) => `  Without \`${column}\`: ${why}.`)
      ].join("\n")
    ).join("\n")
  }
- \`files.jsonl\`: the files below \`files/\`: those that the agent has uploaded, sent or not, and those in messages that it sent or received.
  \`missing\`: the store does not have the file (any more). \`damaged\`: the store has other bytes, which are left out. \`sha256\` is the
  hash of the bytes; it was checked when the export was made.
- \`files/avatar.webp\`: its picture.

## What is not here

${list(notExported(tables))}
${list(elsewhere)}
`
