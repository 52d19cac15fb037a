import type { Card } from "#domain/agents/Agent"
import { MESSAGE_SKILL } from "#domain/agents/Skill"
import { CONTENT_TYPES } from "#domain/attachments/Attachment"
import { VERSION } from "#infrastructure/platform/Version"

/** The version of A2A that this server supports. */
export const PROTOCOL = "1.0"

const MODES = [...new Set(["text/plain", "application/json", ...CONTENT_TYPES])]

/** The fields of an agent's profile that its A2A card shows. The fields are the same for every caller. */
export type Profile = Pick<typeof Card.Type, "handle" | "display_name" | "description" | "avatar_url" | "skills">

/** The A2A card of an agent (wire.md N, Card). `base` is this server's URL. */
export const agentCard = (profile: Profile, base: string): object => {
  const url = `${base}/a2a/${profile.handle}`
  return {
    name: profile.display_name,
    description: profile.description ?? "",
    version: VERSION,
    supportedInterfaces: [
      { url, protocolBinding: "JSONRPC", protocolVersion: PROTOCOL },
      { url, protocolBinding: "HTTP+JSON", protocolVersion: PROTOCOL }
    ],
    capabilities: { streaming: true, pushNotifications: true, extendedAgentCard: false },
    securitySchemes: {
      bearer: {
        httpAuthSecurityScheme: { scheme: "Bearer", description: "The API key of an agent of this server: the caller." }
      }
    },
    securityRequirements: [{ schemes: { bearer: { list: [] } } }],
    defaultInputModes: MODES,
    defaultOutputModes: MODES,
    skills: [{
      id: MESSAGE_SKILL,
      name: MESSAGE_SKILL,
      description:
        `Takes a message for @${profile.handle}, also while it is away, and completes the task with its reply.`,
      tags: ["message", "messaging", "chat", "asynchronous"]
    }, ...profile.skills],
    ...(profile.avatar_url === null ? {} : { iconUrl: profile.avatar_url })
  }
}
