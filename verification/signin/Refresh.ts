import { setTimeout as pause } from "node:timers/promises"
import { form } from "../../test/signin/Flow.ts"

/**
 * A process that refreshes a pair of tokens once and prints the answer: `node Refresh.ts URL CLIENT_ID REFRESH_TOKEN
 * TIME`. Several processes with one `TIME`, in ms since 1970, refresh at once.
 */
const [url = "", clientId = "", token = "", time = "0"] = process.argv.slice(2)
await pause(Math.max(0, Number(time) - Date.now()))
const { body, status } = await form(`${url}/token`, {
  grant_type: "refresh_token",
  client_id: clientId,
  refresh_token: token
})
console.log(JSON.stringify({ status, body }))
