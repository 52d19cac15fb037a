import type { Message } from "#interfaces/pages/client/Wire"
import { assert, it } from "@effect/vitest"
import { Api } from "../../src/interfaces/pages/client/Api.js"
import { Histories } from "../../src/interfaces/pages/client/Histories.js"
import { Notices } from "../../src/interfaces/pages/client/Notices.js"
import { Timers } from "../../src/interfaces/pages/client/Timers.js"
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
