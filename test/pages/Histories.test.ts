import type { Message } from "#interfaces/pages/client/Wire"
import { assert, it } from "@effect/vitest"
import { Api, Refused } from "../../src/interfaces/pages/client/Api.js"
import { Histories } from "../../src/interfaces/pages/client/Histories.js"
import { Notices } from "../../src/interfaces/pages/client/Notices.js"
import { empty, withRead } from "../../src/interfaces/pages/client/Timeline.js"
import { Timers } from "../../src/interfaces/pages/client/Timers.js"
import { eventually } from "../support/Eventually.ts"
import { message } from "./Messages.ts"

it("a page that connects again reads its newest messages again, for the reactions that it has missed", async () => {
  const api = new Api("ac_key")
  const asked: Array<string> = []
  const stored: Array<Message> = Array.from({ length: 90 }, (_, i) => message(i + 1))
  api.get = async (path: string) => {
    const query = new URLSearchParams(path.split("?")[1])
    asked.push(path.split("?")[1]!)
    const after = query.get("after_seq")
    return after === null
      ? stored.slice(-Number(query.get("limit"))).toReversed()
      : stored.filter(({ seq }) => seq > Number(after)).slice(0, Number(query.get("limit")))
  }
  const histories = new Histories(api, new Notices(new Timers()), () => assert.fail("the conversation is there"))
  await histories.catchUp("conv_1")
  const reactions = [{ emoji: "seen", count: 1, mine: false }]
  stored[79] = { ...stored[79]!, reactions }
  stored.push(message(91))
  await histories.catchUp("conv_1", 50)
  assert.deepStrictEqual(asked, ["limit=50", "limit=200&after_seq=40"])
  const { messages } = histories.timeline("conv_1").peek()
  assert.deepStrictEqual(messages.map(({ seq }) => seq), Array.from({ length: 51 }, (_, i) => i + 41))
  assert.deepStrictEqual(messages.find(({ seq }) => seq === 80)?.reactions, reactions)
})

it("a conversation that is gone is said once, and not asked for again", async () => {
  const api = new Api("ac_key")
  const asked: Array<string> = []
  api.get = async (path: string) => {
    asked.push(path)
    throw new Refused("CONVERSATION_NOT_FOUND", "There is no such conversation.", 404, undefined)
  }
  const timers = new Timers()
  const notices = new Notices(timers)
  const gone: Array<string> = []
  const histories = new Histories(api, notices, (id) => gone.push(id))
  await histories.unread("conv_1", 7)
  assert.deepStrictEqual(asked.map((path) => path.split("?")[0]), ["v1/messages/conv_1", "v1/messages/conv_1"])
  assert.deepStrictEqual(gone, ["conv_1"])
  assert.deepStrictEqual(notices.list.peek().map(({ text }) => text), [
    "This conversation is not there, or this agent cannot see it."
  ])
  timers.end()
})

it("older messages that are asked for during another read are read after it, once", async () => {
  const api = new Api("ac_key")
  const asked: Array<string> = []
  const answers: Array<() => void> = []
  api.get = async (path: string) => {
    const query = new URLSearchParams(path.split("?")[1])
    asked.push(String(query))
    await new Promise<void>((resolve) => answers.push(resolve))
    const before = query.get("before_seq")
    return before === null ? [] : Array.from({ length: 200 }, (_, i) => message(Number(before) - 1 - i))
  }
  const histories = new Histories(api, new Notices(new Timers()), () => assert.fail("the conversation is there"))
  histories.timeline("conv_1").value = withRead(empty, [message(901)])
  const reads = [histories.catchUp("conv_1"), histories.older("conv_1"), histories.older("conv_1")]
  assert.deepStrictEqual(asked, ["limit=200&after_seq=901"])
  answers.shift()!()
  await reads[0]
  const older = ["limit=200&after_seq=901", "limit=200&before_seq=901"]
  await eventually("the read of older messages", () => asked.length === 2 || undefined)
  await histories.older("conv_1")
  answers.shift()!()
  await Promise.all(reads)
  assert.deepStrictEqual(asked, older)
  assert.deepStrictEqual(histories.timeline("conv_1").peek().messages[0]?.seq, 701)
})
