/** Stands in for a server: is ready at once, prints the path of each request, and exits with CODE on SIGTERM. */
import { createServer } from "node:http"

const server = createServer((request, response) => {
  if (request.url !== "/v1/ready") console.error(`asked for ${request.url}`)
  response.end()
})
server.listen(0, "127.0.0.1", () => {
  const address = server.address()
  if (typeof address === "object") console.log(`http://127.0.0.1:${address?.port}`)
})
process.on("SIGTERM", () => process.exit(Number(process.env["CODE"] ?? 0)))
