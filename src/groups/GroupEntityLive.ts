import { Effect } from "effect"
import { Entity } from "effect/cluster"
import { Rpc } from "effect/rpc"
import { GroupEntity } from "./GroupEntity.ts"
import { Groups } from "./Groups.ts"

/** The Group for callers on other runners; the actor behind it has its own order. */
export const GroupEntityLive = GroupEntity.toLayer(
  Effect.gen(function*() {
    const groups = yield* Groups
    const { entityId } = yield* Entity.CurrentAddress
    return GroupEntity.of({
      SendToGroup: ({ payload }) => Rpc.fork(groups.local(entityId).send(payload.command)),
      ChangeGroup: ({ payload }) => Rpc.fork(groups.local(entityId).change(payload.command))
    })
  })
)
