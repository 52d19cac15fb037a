import type { Program } from "../hosts/Install.ts"

/** Programs of others that try `/mcp`, in the versions that npm fetches. */
export const CONFORMANCE: Program = {
  package: "@modelcontextprotocol/conformance",
  version: "0.2.0-alpha.12",
  program: "conformance"
}
export const INSPECTOR: Program = {
  package: "@modelcontextprotocol/inspector",
  version: "2.12.0",
  program: "mcp-inspector",
  printsVersion: false
}
export const MCP_REMOTE: Program = {
  package: "mcp-remote",
  version: "0.15.1",
  program: "mcp-remote",
  printsVersion: false
}

/** Libraries that receive events of `/mcp`, and posts of webhooks: a client with a webhook, and two verifiers. */
export const RECEIVERS = ["@ai-sdk/mcp@2.0.99", "standardwebhooks@1.1.1", "svix@2.5.0"]
