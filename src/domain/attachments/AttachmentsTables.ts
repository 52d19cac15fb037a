import { type OwnedTable, SELF, SMALL, WHOLE } from "#infrastructure/database/Tables"

/** The tables of the files of messages, and of how many bytes each agent has stored. */
export const attachmentsTables: ReadonlyArray<OwnedTable> = [
  {
    table: "attachments",
    retention: { jobs: ["uploads", "files"] },
    deletion: "keeps",
    erasure: { removes: ["files"], keeps: ["messages and their files"] },
    exports: [
      {
        name: "uploads",
        about: "The files that it has announced or uploaded. The bytes that were uploaded are in files/.",
        columns: [
          "id",
          "recipient_id",
          "group_id",
          "filename",
          "content_type",
          "size",
          "sha256",
          "created_at",
          "stored_at",
          "used_at",
          "condemned",
          "look_at",
          "quarantined_at"
        ],
        without: { uploader_id: SELF },
        key: [["id", "text"]],
        mine: "t.uploader_id = $1",
        whole: true,
        slice: WHOLE
      }
    ]
  },
  {
    table: "attachment_usage",
    retention: { kept: "one row for each agent, at most" },
    deletion: "keeps",
    erasure: { removes: ["files"], keeps: ["messages and their files"] },
    exports: [
      {
        name: "upload_quota",
        about: "How many bytes its files have together.",
        columns: ["bytes"],
        without: { agent_id: SELF },
        key: [["agent_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  }
]
