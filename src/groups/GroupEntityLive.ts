import { Effect } from "effect"
import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"
import { logDefect } from "../cluster/LogDefect.ts"
import { forRequest, REQUEST_ID } from "../platform/RequestId.ts"
import { GroupEntity } from "./GroupEntity.ts"
import { Groups } from "./Groups.ts"

/** The Group for callers on other runners; the actor behind it has its own order. */
export const GroupEntityLive = GroupEntity.toLayer(
  Effect.gen(function*() {
    const groups = yield* Groups
    const { entityId } = yield* Entity.CurrentAddress
    return GroupEntity.of({
      SendToGroup: ({ headers, payload }) =>
        Rpc.fork(forRequest(headers[REQUEST_ID], logDefect(groups.local(entityId).send(payload.command)))),
      ChangeGroup: ({ headers, payload }) =>
        Rpc.fork(forRequest(headers[REQUEST_ID], logDefect(groups.local(entityId).change(payload.command, payload.said))))
    })
  }),
  // A defect is the caller's answer, and no reason to begin again with all that is in flight.
  { disableFatalDefects: true }
)
