import { RequestsApi } from "#interfaces/signin/RequestsApi"
import { assert, describe, it } from "@effect/vitest"
import { OpenApi } from "effect/http-api"
import { readFileSync } from "node:fs"
import { makeRows, type World } from "../../verification/long/ParserRows.ts"
import { type OpenApiDocument, operationsOf } from "../contract/Document.ts"

/** Operations without a row of their own, each with the reason. */
const WITHOUT_ROW: Readonly<Record<string, string>> = {
  "PUT /v1/groups/{id}/avatar": "reads a picture in the same way as PUT /v1/agents/{handle}/avatar",
  "POST /oauth/requests/{id}/code/verify": "has the same body as POST /v1/register/verify",
  "POST /oauth/requests/{id}/register": "has the same body as POST /v1/register",
  "POST /oauth/requests/{id}/register/verify": "has the same body as POST /v1/register/verify",
  "POST /oauth/requests/{id}/deny": "has a body without fields, and would end the request that other rows need"
}

/** Names and secrets with which requests can be made, but not sent. */
const NOWHERE: World = {
  key: "ac_key",
  alice: "alice",
  bob: "bob",
  clientId: "client",
  file: "/file",
  signIn: { path: "/oauth/requests/orq_1", headers: {} }
}

const document = (text: string): OpenApiDocument => JSON.parse(text) as OpenApiDocument
const api = document(readFileSync(new URL("../contract/openapi.json", import.meta.url), "utf8"))
const signIn = document(JSON.stringify(OpenApi.fromApi(RequestsApi)))

describe("the rows of verification/long/ParserRows.ts", () => {
  const { frames: [frameSize, frames], requests } = makeRows(() => NOWHERE)

  it("have a request for each operation that takes a body, in the API and on the sign-in page", () => {
    const taken = [api, signIn].flatMap(operationsOf).filter(({ body, raw }) => body !== undefined || raw)
      .map(({ name }) => name.replaceAll(/:(\w+)/g, "{$1}"))
    const sent = requests.flatMap(([size, rows]) =>
      Object.values(rows).map(([, ask]) => {
        const { method = "GET", path = "/" } = ask(size)
        return `${method} ${path.replace(/\?.*$/s, "")}`
      })
    )
    const isSent = (name: string): boolean => {
      const pattern = new RegExp(`^${name.replaceAll(/\{\w+\}/g, "[^/]+")}$`)
      return sent.some((one) => pattern.test(one))
    }
    assert.isAbove(taken.length, 30)
    assert.deepStrictEqual(taken.filter((name) => !isSent(name) && !(name in WITHOUT_ROW)), [], "without row")
    assert.deepStrictEqual(Object.keys(WITHOUT_ROW).filter((name) => !taken.includes(name) || isSent(name)), [])
  })

  it("have a frame for each type of frame that the server reads", () => {
    const types = Object.keys(api["x-websocket"].send)
    const sent = new Set(Object.values(frames).map(([, frame]) => /^\{"type":"([^"]+)"/.exec(frame(frameSize))?.[1]))
    assert.isAbove(types.length, 5)
    assert.deepStrictEqual(types.filter((type) => !sent.has(type)), [], "without row")
  })
})
