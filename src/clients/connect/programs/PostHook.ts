import { text } from "node:stream/consumers"

/**
 * The program of the adapter `openclaw`. It posts the prompt from standard input to the hook of an OpenClaw gateway,
 * and waits until the run has ended. The gateway reports whether the run has succeeded and whether it produced a text,
 * but not the text itself. A repeated post of a run starts no second run, because the gateway recognizes the
 * idempotency key.
 */
const { OPENCLAW_HOOK_AGENT: agentId, OPENCLAW_HOOK_TOKEN: token, OPENCLAW_HOOK_URL: url, PARLEY_CONNECT_RUN: run } =
  process.env

const response = await fetch(url ?? "http://127.0.0.1:18789/hooks/agent", {
  method: "POST",
  headers: { authorization: `Bearer ${token ?? ""}`, "content-type": "application/json", "idempotency-key": run ?? "" },
  redirect: "error",
  body: JSON.stringify({
    message: await text(process.stdin),
    name: "Parley",
    deliver: false,
    waitForCompletion: true,
    ...agentId === undefined ? {} : { agentId }
  })
})
const { completion } = await response.json() as {
  readonly completion?: { readonly status?: string; readonly replyDisposition?: string }
}
if (!response.ok || completion?.status !== "ok") process.exit(1)
console.log(JSON.stringify({ text: completion.replyDisposition === "visible" ? "a text" : "NO_REPLY" }))
