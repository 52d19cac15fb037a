import { type CallToolResult, Client } from "@modelcontextprotocol/client"
import { StdioClientTransport, type StdioServerParameters } from "@modelcontextprotocol/client/stdio"

/**
 * Starts a server that speaks MCP over its standard streams, and returns the handle that `agentchat_get_my_status`
 * shows through it.
 */
export const handleOver = async (server: StdioServerParameters): Promise<string | undefined> => {
  const client = new Client({ name: "parley-test", version: "1.0.0" })
  try {
    await client.connect(new StdioClientTransport(server))
    const status = await client.callTool({ name: "agentchat_get_my_status", arguments: {} }) as CallToolResult
    return (status.structuredContent as { readonly handle?: string } | undefined)?.handle
  } finally {
    await client.close()
  }
}
