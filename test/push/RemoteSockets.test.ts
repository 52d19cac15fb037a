import { RemoteSockets } from "#domain/push/RemoteSockets"
import { assert, describe, it } from "@effect/vitest"
import * as fc from "fast-check"

const idOf = (bytes: Uint8Array): string => `agt_${Buffer.from(bytes).toString("base64url")}`
const agentId = fc.oneof(
  fc.uint8Array({ minLength: 12, maxLength: 12 }).map(idOf),
  // Ids that look alike, and ids of another shape.
  fc.integer({ min: 0, max: 9 }).map((n) => `agt_${"A".repeat(15)}${n}`),
  fc.constantFrom("ada", "agt_", "agt_AAAAAAAAAAAAAAA!", "agt_AAAAAAAAAAAAAAAé", "msg_AAAAAAAAAAAAAAAA", "")
)
const step = fc.record({
  agent: fc.nat(30),
  node: fc.integer({ min: 1, max: 4 }),
  since: fc.array(fc.integer({ min: 1, max: Number.MAX_SAFE_INTEGER }), { maxLength: 3 }),
  isEnd: fc.nat(20).map((n) => n === 0)
})

const found = (sockets: RemoteSockets, agent: string): ReadonlyArray<string> => {
  const all: Array<string> = []
  sockets.visit(agent, (node, since) => all.push(`${node} ${since}`))
  return all.sort()
}

describe("the sockets on other nodes", () => {
  it("are those that the nodes announced last, until the node ends", () => {
    fc.assert(
      fc.property(
        fc.array(agentId, { minLength: 1, maxLength: 31 }),
        fc.array(step, { maxLength: 200 }),
        (ids, steps) => {
          const sockets = new RemoteSockets()
          const model = new Map<string, ReadonlyArray<number>>()
          for (const { agent: no, isEnd, node, since } of steps) {
            const agent = ids[no % ids.length]!
            if (isEnd) {
              const gone = [...model.keys()].filter((key) => key.startsWith(`${node} `))
              assert.deepStrictEqual(
                [...sockets.removeNode(node)].sort(),
                gone.map((key) => key.slice(`${node} `.length)).sort()
              )
              for (const key of gone) model.delete(key)
            } else {
              sockets.set(agent, node, since)
              if (since.length > 0) model.set(`${node} ${agent}`, since)
              else model.delete(`${node} ${agent}`)
            }
            for (const other of new Set(ids)) {
              const known = [1, 2, 3, 4].flatMap((node) =>
                (model.get(`${node} ${other}`) ?? []).map((since) => `${node} ${since}`)
              )
              assert.deepStrictEqual(found(sockets, other), known.sort())
            }
          }
        }
      )
    )
  })

  it("are all found among very many, while nodes come and go", () => {
    const sockets = new RemoteSockets()
    const count = 60_000
    const bytes = Buffer.alloc(12)
    const agent = (no: number): string => {
      bytes.writeUIntBE(1_780_000_000_000 + no, 0, 6)
      bytes.writeUInt32BE(Math.imul(no, 0x9E3779B1) >>> 0, 8)
      return idOf(bytes)
    }
    for (let no = 0; no < count; no++) sockets.set(agent(no), no % 50 + 1, [no + 1])
    for (let no = 0; no < count; no++) assert.deepStrictEqual(found(sockets, agent(no)), [`${no % 50 + 1} ${no + 1}`])
    for (let node = 2; node <= 50; node++) assert.lengthOf(sockets.removeNode(node), count / 50)
    for (let no = 0; no < count; no++)
      assert.deepStrictEqual(found(sockets, agent(no)), no % 50 === 0 ? [`1 ${no + 1}`] : [])
    assert.lengthOf(sockets.removeNode(1), count / 50)
    assert.deepStrictEqual(sockets.removeNode(1), [])
  })

  it("take less than 45 bytes each, and almost none when they are gone", () => {
    const sockets = new RemoteSockets()
    const count = 100_000
    const bytes = Buffer.alloc(12)
    for (let no = 0; no < count; no++) {
      bytes.writeUInt32BE(no, 8)
      sockets.set(idOf(bytes), 1, [no])
    }
    assert.isBelow(sockets.bytes / count, 45)
    sockets.removeNode(1)
    assert.isBelow(sockets.bytes, 100_000)
  })
})
