import type { AccountRefusal, Issued } from "#domain/agents/Accounts"
import { Config, type Settings } from "#infrastructure/platform/Config"
import { sha256 } from "#infrastructure/platform/Ids"
import type { Unavailable } from "#infrastructure/wire/WireError"
import { Clock, Context, Effect, Layer } from "effect"
import { RegistrationClosed } from "./Code.ts"
import { InvitationsRepo, type OpenInvitation } from "./InvitationsRepo.ts"

type Rules = Pick<Settings, "REGISTRATION" | "REGISTRATION_DOMAINS">

/** `refused`, `open`, or `invited` if the registration uses up the invitation. */
export type Admission = "refused" | "open" | "invited"

/**
 * Decides who may register (wire.md T). An invitation that names the address admits it whatever its domain is, because
 * an operator has typed it. Any other registration needs a domain of the list, if there is a list.
 */
export const admissionOf = (
  { REGISTRATION, REGISTRATION_DOMAINS }: Rules,
  email: string,
  invitation: Pick<OpenInvitation, "email"> | undefined
): Admission => {
  if (REGISTRATION === "closed") return "refused"
  if (invitation?.email === email) return "invited"
  const domain = email.slice(email.lastIndexOf("@") + 1)
  if (REGISTRATION_DOMAINS.length > 0 && !REGISTRATION_DOMAINS.includes(domain)) return "refused"
  if (REGISTRATION === "open") return "open"
  return invitation?.email === null ? "invited" : "refused"
}

/** Decides who may register, and uses up invitations. */
export class Admissions extends Context.Service<Admissions, {
  /**
   * Returns the id of the invitation that admits a registration, or null if it needs none. An address with an account
   * is decided on in the same way.
   */
  readonly admit: (applicant: {
    readonly email: string
    readonly inviteCode: string | null
  }) => Effect.Effect<string | null, RegistrationClosed | Unavailable>
  /**
   * Runs `create` if the registration is still admitted, and counts the use of its invitation if `create` returns an
   * account. Runs in the caller's transaction. Returns `closed` if the registration is not admitted any more.
   */
  readonly using: (
    code: { readonly email: string; readonly invitationId: string | null },
    create: Effect.Effect<Issued | AccountRefusal, Unavailable>
  ) => Effect.Effect<Issued | AccountRefusal | "closed", Unavailable>
}>()("parley/registration/Admissions") {
  static readonly layer = Layer.effect(
    Admissions,
    Effect.gen(function*() {
      const config = yield* Config
      const repo = yield* InvitationsRepo
      /** Whether a registration may need an invitation. */
      const invites = config.REGISTRATION === "invite" || config.REGISTRATION_DOMAINS.length > 0

      return Admissions.of({
        admit: Effect.fn("Admissions.admit")(function*({ email, inviteCode }) {
          const now = yield* Clock.currentTimeMillis
          const named = invites ? yield* repo.byEmail(email, now) : undefined
          const invitation = named ?? (invites && inviteCode !== null
            ? yield* repo.byCode(sha256(inviteCode), now)
            : undefined)
          switch (admissionOf(config, email, invitation)) {
            case "refused":
              return yield* new RegistrationClosed({ message: closedMessage(config) })
            case "open":
              return null
            case "invited":
              return invitation?.id ?? null
          }
        }),
        using: Effect.fnUntraced(function*(code, create) {
          const { email, invitationId } = code
          const invitation = invitationId === null
            ? undefined
            : yield* repo.lock(invitationId, yield* Clock.currentTimeMillis)
          // The rules may have changed since the code was mailed, and the invitation may have ended.
          const admission = admissionOf(config, email, invitation)
          if (admission === "refused") return "closed"
          const account = yield* create
          if (admission === "invited" && invitation !== undefined && typeof account !== "string")
            yield* repo.use(invitation.id)
          return account
        })
      })
    })
  )
}

/** Makes the message of a refusal, which says who may register. */
const closedMessage = ({ REGISTRATION, REGISTRATION_DOMAINS }: Rules): string => {
  const domains = REGISTRATION_DOMAINS.length === 0
    ? ""
    : ` Unless an invitation names the address, only addresses of ${REGISTRATION_DOMAINS.join(", ")} can register.`
  return REGISTRATION === "closed"
    ? "Nobody can register on this server: ask its operators for an account."
    : REGISTRATION === "invite"
    ? `Registration on this server needs an invitation that has not ended and is not used up: one for this address, or the code of one in invite_code.${domains}`
    : `This server does not accept a registration with this address.${domains}`
}

/** Tells an operator what an invitation is good for under the present settings. */
export const invitationWords = (
  { REGISTRATION, REGISTRATION_DOMAINS }: Rules,
  email: string | null
): string =>
  REGISTRATION === "closed"
    ? "REGISTRATION is closed, so this invitation admits nobody."
    : email !== null
    ? `Only ${email} can register with it, also without the link, with any client.`
    : REGISTRATION === "open"
    ? "REGISTRATION is open, so this invitation changes nothing: only one that names an address admits it whatever its domain is."
    : REGISTRATION_DOMAINS.length > 0
    ? `Addresses of ${REGISTRATION_DOMAINS.join(", ")} can register with it.`
    : "Everybody who has the link can register with it."
