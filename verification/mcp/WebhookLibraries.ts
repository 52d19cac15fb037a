import { randomBytes } from "node:crypto"
import { once } from "node:events"
import { createServer } from "node:http"
import { createRequire } from "node:module"
import type { AddressInfo } from "node:net"
import { join } from "node:path"

interface Agent {
  readonly handle: string
  readonly key: string
}

/** The libraries that verify by Standard Webhooks. */
const LIBRARIES = ["standardwebhooks", "svix"]

/**
 * Makes two webhooks, one with a `whsec_` secret and one with the server's own, sends a message, and verifies both
 * posts with the libraries in `folder`. The server may post to loopback addresses. Returns the problem, or an empty
 * text.
 */
export const webhookLibraries = async (
  folder: string,
  base: string,
  [from, to]: readonly [Agent, Agent]
): Promise<string> => {
  const load = createRequire(join(folder, "package.json"))
  const posts = new Map<string, { readonly body: string; readonly headers: Record<string, string> }>()
  const receiver = createServer((asked, answer) => {
    let body = ""
    asked.setEncoding("utf8").on("data", (part: string) => body += part).on("end", () => {
      posts.set(asked.url ?? "", { body, headers: asked.headers as Record<string, string> })
      answer.writeHead(204).end()
      receiver.emit("posted")
    })
  }).listen(0, "127.0.0.1")
  const post = async ({ key }: Agent, path: string, body: object) => {
    const response = await fetch(base + path, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body: JSON.stringify(body)
    })
    if (!response.ok) throw new Error(`POST ${path}: ${await response.text()}`)
    return await response.json() as { readonly secret: string }
  }
  try {
    await once(receiver, "listening")
    const { port } = receiver.address() as AddressInfo
    const hook = (path: string, more: object) =>
      post(to, "/v1/webhooks", { url: `http://127.0.0.1:${port}${path}`, events: ["message.new"], ...more })
    const standard = await hook("/standard", { secret: `whsec_${randomBytes(24).toString("base64")}` })
    const raw = await hook("/raw", {})
    await post(from, "/v1/messages", { to: to.handle, client_msg_id: "webhook-libraries", content: { text: "signed" } })
    const signal = AbortSignal.timeout(60_000)
    while (posts.size < 2) await once(receiver, "posted", { signal })
    for (const library of LIBRARIES) {
      const { Webhook } = await import(load.resolve(library))
      for (
        const [path, verifier] of [["/standard", new Webhook(standard.secret)], [
          "/raw",
          new Webhook(raw.secret, { format: "raw" })
        ]] as const
      ) {
        const { body, headers } = posts.get(path)!
        verifier.verify(body, headers)
      }
    }
    return ""
  } catch (error) {
    return String(error instanceof Error ? error.stack : error)
  } finally {
    receiver.closeAllConnections()
    receiver.close()
  }
}
