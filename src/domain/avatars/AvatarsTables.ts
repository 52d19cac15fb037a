import type { OwnedTable } from "#infrastructure/database/Tables"

/** The table of the pictures in the store. */
export const avatarsTables: ReadonlyArray<OwnedTable> = [
  {
    table: "avatars",
    retention: { jobs: ["avatars"] },
    notExported: "which pictures the store has, by content; the agent's own is files/avatar.webp"
  }
]
