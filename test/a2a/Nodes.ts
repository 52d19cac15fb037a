import { assert, beforeAll, it } from "@effect/vitest"
import { newPair, say } from "../contract/Talk.ts"
import { eventually, within } from "../support/Eventually.ts"
import { type Cluster, on } from "../support/Nodes.ts"
import { Receiver } from "../support/Receiver.ts"
import { newAgent, type Server, type TestAgent } from "../support/Server.ts"
import {
  begin,
  connect,
  get,
  listing,
  message,
  pushed,
  pushTo,
  refusal,
  said,
  sending,
  stateOf,
  statesAt
} from "./A2a.ts"

/** Settings that these tests need. */
export const settingsOfTasks = { LIMITS_PUSH_CONFIGS_PER_AGENT: "8" }

/** Tasks over two nodes. */
export const tasksOnNodes = (started: () => Cluster): void => {
  let cluster: Cluster
  let one: Server
  let two: Server
  let alice: TestAgent
  let bob: TestAgent
  beforeAll(async () => {
    cluster = started()
    ;[one, two] = cluster.pair
    ;({ alice, bob } = await newPair(one))
  })

  it("are the same wherever their caller asks, and a stream hears of what happens on the other node", async () => {
    const here = await connect(one, alice, bob, "JSONRPC")
    const there = await connect(two, alice, bob, "HTTP+JSON")
    const task = await begin(here, "over there")
    const heard: Array<string> = []
    const stream = (async () => {
      for await (const event of there.resubscribeTask({ tenant: "", id: task.id })) heard.push(said(event))
    })()
    await eventually("the stream", () => heard[0])
    await say(on(one, bob), alice, { metadata: { a2a: { task_id: task.id, state: "WORKING" } } })
    await eventually("the state", () => heard.includes("status WORKING") || undefined)
    await say(on(two, bob), alice, { metadata: { reply_to: task.id } })
    await within("the end of the stream", stream)
    assert.deepStrictEqual(heard, ["task SUBMITTED", "status WORKING", "artifact", "status COMPLETED"])
    assert.deepStrictEqual(await get(here, task.id), await get(there, task.id))
  })

  it("one messageId on both nodes at once is one task", async () => {
    const clients = await Promise.all([one, two].map((node) => connect(node, alice, bob, "JSONRPC")))
    const given = message("once")
    const ids = (await Promise.all(Array.from({ length: 20 }, (_, i) => begin(clients[i % 2]!, given)))).map(({ id }) =>
      id
    )
    assert.lengthOf([...new Set(ids)], 1)
  })

  it("a reply on one node and a cancellation on the other have one outcome", async () => {
    const [here, there] = await Promise.all([one, two].map((node) => connect(node, alice, bob, "JSONRPC"))) as [
      Awaited<ReturnType<typeof connect>>,
      Awaited<ReturnType<typeof connect>>
    ]
    for (let round = 0; round < 10; round++) {
      const task = await begin(here, `round ${round}`)
      const [cancelled] = await Promise.all([
        here.cancelTask({ tenant: "", id: task.id, metadata: undefined }).then(stateOf, () => "refused"),
        there.cancelTask({ tenant: "", id: task.id, metadata: undefined }).then(stateOf, () => "refused"),
        say(on(two, bob), alice, { metadata: { reply_to: task.id } })
      ])
      const states = new Set(
        (await Promise.all([here, there, here, there].map((client) => get(client, task.id)))).map(stateOf)
      )
      assert.deepStrictEqual([...states], [cancelled === "refused" ? "COMPLETED" : "CANCELED"])
    }
    assert.deepStrictEqual(
      (await here.listTasks(listing({ pageSize: 100 }))).tasks.map(({ id }) => id),
      (await there.listTasks(listing({ pageSize: 100 }))).tasks.map(({ id }) => id)
    )
  })

  it("configurations of either node are the same, and changes of either are posted once", async () => {
    const receiver = await Receiver.start()
    try {
      const here = await connect(one, alice, bob, "JSONRPC")
      const there = await connect(two, alice, bob, "HTTP+JSON")
      const tasks = await Promise.all(
        Array.from({ length: 6 }, (_, i) => begin(i % 2 === 0 ? here : there, `pushed ${i}`))
      )
      for (const [i, { id }] of tasks.entries()) {
        const config = await (i % 2 === 0 ? there : here).createTaskPushNotificationConfig(
          pushTo(receiver.url(`/${id}`), { taskId: id })
        )
        assert.deepStrictEqual(
          await (i % 2 === 0 ? here : there).getTaskPushNotificationConfig({ tenant: "", taskId: id, id: config.id }),
          config
        )
      }
      await Promise.all(tasks.map(async ({ id }, i) => {
        const called = on(i < 3 ? one : two, bob)
        await say(called, alice, { metadata: { a2a: { task_id: id, state: "INPUT_REQUIRED" } } })
        await Promise.all([
          say(called, alice, { metadata: { reply_to: id } }),
          ...[here, there].map((client) => get(client, id))
        ])
      }))
      for (const { id } of tasks) {
        await eventually("the end", () => statesAt(receiver, `/${id}`).length === 2 || undefined)
        assert.sameMembers([...statesAt(receiver, `/${id}`)], ["INPUT_REQUIRED", "COMPLETED"])
        assert.lengthOf(new Set(pushed(receiver, `/${id}`).map(({ post }) => post.headers["x-agentchat-delivery"])), 2)
      }
    } finally {
      receiver.stop()
    }
  })

  it("an agent's limit of configurations is exact over both nodes; a send beyond it sends nothing, and a repeated send is granted", async () => {
    const receiver = await Receiver.start()
    try {
      // A conversation with each of several agents: what locks one of them does not lock the others.
      const { alice: caller, bob: called } = await newPair(one)
      const others = await Promise.all(Array.from({ length: 3 }, () => newAgent(one, "called")))
      const clients = await Promise.all([called, ...others].map(async (agent) => ({
        here: await connect(one, caller, agent, "JSONRPC"),
        there: await connect(two, caller, agent, "JSONRPC")
      })))
      const { here } = clients[0]!
      const request = (given: ReturnType<typeof message>) => {
        const { configuration, ...rest } = sending(given, true)
        return {
          ...rest,
          configuration: { ...configuration, taskPushNotificationConfig: pushTo(receiver.url("/limit")) }
        }
      }
      const given = message("with a configuration")
      const sent = await here.sendMessage(request(given))
      const tasks = await Promise.all(clients.map((client) => begin(client.here, "limited")))
      const putMany = (many: number) =>
        Promise.all(
          Array.from({ length: many }, (_, i) =>
            clients[i % 4]![i % 8 < 4 ? "here" : "there"].createTaskPushNotificationConfig(
              pushTo(receiver.url("/limit"), { taskId: tasks[i % 4]!.id })
            )
              .catch((error: Error) =>
                assert.match(error.message, /as many .* as an agent may have/)
              ))
        )
      const made = (await putMany(24)).filter((config) => config !== undefined)
      assert.lengthOf(made, 7)
      // At the limit: whoever is first gets the place that one leaves.
      for (let round = 0; round < 12; round++) {
        const { id, taskId } = made.pop()!
        await clients[tasks.findIndex((task) => task.id === taskId)]!.here.deleteTaskPushNotificationConfig({
          tenant: "",
          taskId,
          id
        })
        made.push(...(await putMany(8)).filter((config) => config !== undefined))
        assert.lengthOf(made, 7, `round ${round}`)
      }
      const beyond = await refusal("a send beyond the limit", here.sendMessage(request(message("beyond"))))
      assert.match(beyond.message, /as an agent may have/)
      assert.lengthOf((await here.listTasks(listing({ pageSize: 100 }))).tasks, 2)
      assert.deepStrictEqual(await here.sendMessage(request(given)), sent)
    } finally {
      receiver.stop()
    }
  })
}

/** A stream at a node that is about to stop, which has to end it; the next one of the same caller goes on elsewhere. */
export const streamAt = async (
  stopping: Server,
  elsewhere: Server
): Promise<{ readonly goesOn: () => Promise<void> }> => {
  const { alice, bob } = await newPair(elsewhere)
  const [here, there] = [
    await connect(stopping, alice, bob, "JSONRPC"),
    await connect(elsewhere, alice, bob, "JSONRPC")
  ]
  const task = await begin(there, "moving")
  const heard: Array<string> = []
  const stream = (async () => {
    for await (const event of here.resubscribeTask({ tenant: "", id: task.id })) heard.push(said(event))
  })()
  await eventually("the stream", () => heard[0])
  const goesOn = async (): Promise<void> => {
    await within("the end of the stream", stream)
    assert.notInclude(heard, "status COMPLETED")
    const rest: Array<string> = []
    const again = (async () => {
      for await (const event of there.resubscribeTask({ tenant: "", id: task.id })) rest.push(said(event))
    })()
    await eventually("the next stream", () => rest[0])
    await say(bob, alice, { metadata: { reply_to: task.id } })
    await within("the end", again)
    assert.strictEqual(rest.at(-1), "status COMPLETED")
  }
  return { goesOn }
}
