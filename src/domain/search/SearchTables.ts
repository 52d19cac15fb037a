import type { OwnedTable } from "#infrastructure/database/Tables"

/** The tables of the words of messages. Both are a cache of `messages`. */
export const searchTables: ReadonlyArray<OwnedTable> = [
  {
    table: "message_words",
    retention: { jobs: ["message_words_gone"] },
    notExported: "the words of the messages, for searches"
  },
  {
    table: "message_word_ranges",
    retention: { kept: "a conversation stays listed without its messages" },
    notExported: "how many messages have their words in message_words"
  }
]
