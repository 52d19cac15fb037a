import { DateTimeString, iso } from "#infrastructure/wire/Text"
import { WireError } from "#infrastructure/wire/WireError"
import { Schema } from "effect"

/**
 * The deletion of a group as its former members see it: the payload of `group.deleted` over the socket
 * and by webhook (wire.md E.5, C.12), and the details of 410 `GROUP_DELETED` (C.8).
 */
export const GroupDeletion = Schema.Struct({
  group_id: Schema.String,
  deleted_by_handle: Schema.String,
  deleted_at: DateTimeString
})

/** Makes a GroupDeletion. `at` is in milliseconds. */
export const toGroupDeletion = (groupId: string, byHandle: string, at: number): typeof GroupDeletion.Type => ({
  group_id: groupId,
  deleted_by_handle: byHandle,
  deleted_at: iso(at)
})

export class GroupDeleted extends WireError<GroupDeleted>()("GroupDeleted", {
  code: "GROUP_DELETED",
  status: 410,
  message: "This group was deleted.",
  details: GroupDeletion.fields
}) {}

export class GroupNotFound extends WireError<GroupNotFound>()("GroupNotFound", {
  code: "GROUP_NOT_FOUND",
  status: 404,
  message: "No group with this id is visible to you."
}) {}
