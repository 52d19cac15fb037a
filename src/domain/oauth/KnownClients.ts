import type { Client } from "./AuthorizationRequest.ts"

const LOOPBACK = ["http://127.0.0.1/callback", "http://localhost/callback"]

/**
 * Clients whose documents a server often cannot fetch, because the documents' hosts refuse programs. Each entry
 * contains the name and the redirect URIs of the document, taken from several public captures of August and September
 * 2026.
 */
const KNOWN: Readonly<Record<string, readonly [name: string, redirectUris: ReadonlyArray<string>]>> = {
  "https://claude.ai/oauth/mcp-oauth-client-metadata": ["Claude", ["https://claude.ai/api/mcp/auth_callback"]],
  "https://claude.ai/oauth/claude-code-client-metadata": ["Claude Code", LOOPBACK],
  "https://chatgpt.com/oauth/client.json": ["ChatGPT", ["https://chatgpt.com/connector_platform_oauth_redirect"]],
  "https://chatgpt.com/oauth/codex/client.json": ["Codex", LOOPBACK],
  "https://vscode.dev/oauth/client-metadata.json": ["Visual Studio Code", [
    "http://127.0.0.1:33418/",
    "https://vscode.dev/redirect"
  ]],
  "https://zed.dev/oauth/client-metadata.json": ["Zed", ["http://127.0.0.1/callback"]],
  "https://opencode.ai/oauth/opencode/client.json": ["opencode", LOOPBACK]
}

/** Returns the known client whose document has this URL, without fetching the document. */
export const knownClient = (id: string): Client | undefined => {
  if (!Object.hasOwn(KNOWN, id)) return undefined
  const [name, redirectUris] = KNOWN[id]!
  return { id, source: "document", redirectUris, name }
}
