/** The shapes of the sign-in page's API (wire.md P). */

export interface SigningIn {
  readonly handle: string
  readonly display_name: string | null
  readonly email_masked: string
  readonly status: "active" | "restricted" | "suspended"
}

export type Scope = "agent:read" | "agent:act"

export interface SignInRequest {
  /**
   * `host` is the host of the client's own metadata document. `host` is `null` for a registered client. Nobody has
   * checked the name of such a client.
   */
  readonly client: { readonly name: string | null; readonly host: string | null }
  readonly redirect: { readonly kind: "https" | "loopback" | "private"; readonly shown: string }
  readonly scopes: ReadonlyArray<Scope>
  readonly expires_at: string
  readonly agent: SigningIn | null
}

/** What the page shows. */
export type State =
  | { readonly kind: "loading" }
  | { readonly kind: "unreachable"; readonly why: string }
  /** The request does not exist, or belongs to another browser. */
  | { readonly kind: "over" }
  | { readonly kind: "choosing"; readonly request: SignInRequest }
  /** The person has registered an agent. The page shows the agent's key once. */
  | { readonly kind: "registered"; readonly request: SignInRequest; readonly agent: SigningIn; readonly key: string }
  | { readonly kind: "deciding"; readonly request: SignInRequest; readonly agent: SigningIn }
  /**
   * The person has allowed or denied the request, and the browser goes to `to`. `agent` is `null` if the person denied
   * it.
   */
  | {
    readonly kind: "answered"
    readonly request: SignInRequest
    readonly agent: SigningIn | null
    readonly to: string
  }
