import { type OwnedTable, SAME, SELF, SMALL, WHOLE } from "#infrastructure/database/Tables"
import type { Settings } from "#infrastructure/platform/Config"
import { DAY_MS } from "./Group.ts"

/** How long a request with an Idempotency-Key can be repeated, in milliseconds. */
const repeatableMs = ({ IDEMPOTENCY_RETENTION_HOURS }: Settings): number =>
  Math.max(DAY_MS, IDEMPOTENCY_RETENTION_HOURS * 3_600_000)

/** The tables of groups, their members and invites. The messages of groups are in the tables of `messages/`. */
export const groupsTables: ReadonlyArray<OwnedTable> = [
  {
    table: "groups",
    retention: { kept: "a group keeps its name and its history" },
    deletion: "changes",
    erasure: { removes: [], keeps: ["when it was in which group"] },
    exports: []
  },
  {
    table: "group_members",
    retention: { kept: "it is the groups' history" },
    deletion: "changes",
    erasure: { removes: ["memberships"], keeps: ["when it was in which group"] },
    exports: [
      {
        name: "groups",
        about: "The groups that it is, or was (left_at), a member of.",
        columns: ["group_id", "role", "joined_at", "joined_seq", "left_at"],
        without: { agent_id: SELF },
        key: [["group_id", "text"], ["agent_id", "text"]],
        mine: "t.agent_id = $1",
        whole: true,
        slice: WHOLE,
        join: {
          as: "group",
          table: "groups",
          on: "j.id = t.group_id",
          columns: [
            "name",
            "description",
            "avatar_url",
            "avatar_key",
            "creator_id",
            "member_count",
            "created_at",
            "deleted_at",
            "deleted_by"
          ],
          without: { id: SAME }
        }
      }
    ]
  },
  {
    table: "group_invites",
    retention: { kept: "an answer removes the invite" },
    deletion: "deletes",
    erasure: { removes: ["memberships"], keeps: [] },
    exports: [
      {
        name: "group_invites",
        about: "Unanswered invites to groups, those that it got and those that it made.",
        columns: ["id", "group_id", "invitee_id", "inviter_id", "created_at"],
        without: {},
        key: [["id", "text"]],
        mine: "(t.invitee_id = $1 OR t.inviter_id = $1)",
        slice: SMALL
      }
    ]
  },
  {
    table: "group_refusals",
    retention: {
      expires: [{
        job: "group_refusals",
        every: "1 hour",
        column: "refused_at",
        keptMs: ({ LIMITS_GROUP_REFUSAL_SECONDS }) => LIMITS_GROUP_REFUSAL_SECONDS * 1_000
      }]
    },
    deletion: "keeps",
    erasure: { removes: ["memberships"], keeps: [] },
    exports: [
      {
        name: "group_refusals",
        about: "Groups whose invites it has refused within the last day.",
        columns: ["group_id", "refused_at"],
        without: { agent_id: SELF },
        key: [["group_id", "text"], ["agent_id", "text"]],
        mine: "t.agent_id = $1",
        whole: true,
        slice: WHOLE
      }
    ]
  },
  {
    table: "invite_budgets",
    retention: { kept: "one row for each agent, at most" },
    deletion: "keeps",
    erasure: { removes: ["memberships"], keeps: [], few: "budgets" },
    exports: [
      {
        name: "invites_made",
        about: "When it made its latest invites to groups.",
        columns: ["spent"],
        without: { agent_id: SELF },
        key: [["agent_id", "text"]],
        mine: "t.agent_id = $1",
        slice: SMALL
      }
    ]
  },
  {
    table: "silent_group_changes",
    retention: {
      expires: [{ job: "silent_group_changes", every: "1 hour", column: "changed_at", keptMs: repeatableMs }]
    },
    notExported: "ids of requests, without an agent"
  }
]
