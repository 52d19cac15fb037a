import { decideDelivered, decideMessage, markOf, type Task, withTask } from "#interfaces/a2a/Task"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"
import { taskStates } from "../../src/interfaces/pages/client/Tasks.js"
import { message } from "./Messages.ts"

const said = fc.record({
  fromAlice: fc.boolean(),
  isTask: fc.boolean(),
  /** Which earlier messages it names. */
  task: fc.option(fc.nat(30)),
  replyTo: fc.option(fc.nat(30)),
  state: fc.option(
    fc.constantFrom(
      "WORKING",
      "input-required",
      "TASK_STATE_AUTH_REQUIRED",
      "COMPLETED",
      "FAILED",
      "REJECTED",
      "SUBMITTED",
      "nonsense"
    )
  ),
  delivered: fc.boolean()
})

describe("tasks on the page", () => {
  it("have the states that the server derives from the same messages", () => {
    fc.assert(fc.property(fc.array(said, { maxLength: 30 }), (all) => {
      const messages = all.map(({ delivered, fromAlice, isTask, replyTo, state, task }, i) => {
        const earlier = (n: number | null) => n === null || i === 0 ? undefined : `msg_${n % i}`
        const id = `msg_${i}`
        return message(i + 1, {
          id,
          sender: fromAlice ? "alice" : "bob",
          metadata: {
            ...(isTask || task !== null || state !== null
              ? { a2a: { task_id: isTask ? id : earlier(task), ...(state === null || isTask ? {} : { state }) } }
              : {}),
            ...(replyTo === null ? {} : { reply_to: earlier(replyTo) })
          },
          status: delivered ? "delivered" : "stored"
        })
      })
      const tasks = new Map<string, Task>()
      let open: ReadonlyArray<Task> = []
      for (const { id, metadata, sender, seq } of messages) {
        const recipientId = sender === "alice" ? "bob" : "alice"
        const posted = { id, seq, senderId: sender, recipientId, at: seq, mark: markOf(JSON.stringify(metadata)) }
        const task = decideMessage("conv_1", open, posted)
        if (task === undefined) continue
        open = withTask(open, task)
        tasks.set(task.id, task)
      }
      const expected = [...tasks.values()].map((task) => {
        const newest = messages[(task.log.at(-1)?.seq ?? 0) - 1]
        return [task.id, (newest?.status === "delivered" ? decideDelivered(task, 0) : undefined)?.state ?? task.state]
      })
      assert.deepStrictEqual([...taskStates(messages)].toSorted(), expected.toSorted())
    }))
  })

  it("a task that the server marks as cancelled is cancelled, and a reply after it is about the next one", () => {
    const states = taskStates([
      message(1, { sender: "alice", metadata: { a2a: { task_id: "msg_1", state: "CANCELED" } } }),
      message(2, { sender: "alice", metadata: { a2a: { task_id: "msg_2" } } }),
      message(3)
    ])
    assert.deepStrictEqual([...states], [["msg_1", "CANCELED"], ["msg_2", "COMPLETED"]])
  })
})
