import { Redacted } from "effect"
import { hkdfSync } from "node:crypto"
import type { ConnectionOptions, TlsOptions } from "node:tls"

const SUITE = { ciphers: "ECDHE-PSK-CHACHA20-POLY1305", minVersion: "TLSv1.2", maxVersion: "TLSv1.2" } as const

/**
 * The PSK identities, in the order of the secrets in the server's RUNNER_SECRET. The client's first secret may be the
 * server's second secret.
 */
const IDENTITIES = ["parley", "parley 2"] as const

/** The secrets in RUNNER_SECRET: the current one, and during a rotation also the previous one. */
export const secretsOf = (setting: Redacted.Redacted<string>): ReadonlyArray<string> =>
  Redacted.value(setting).split(",").map((part) => part.trim())

const keyOf = (secret: string): Buffer => Buffer.from(hkdfSync("sha256", secret, "", "parley between nodes", 32))

/**
 * The server's options for TLS with a pre-shared key. Both sides prove that they know one of the server's secrets, and
 * the connection is encrypted.
 */
export const serverTls = (setting: Redacted.Redacted<string>): TlsOptions => {
  const keys = secretsOf(setting).map(keyOf)
  return {
    ...SUITE,
    pskCallback: (_: unknown, identity: string) => keys[IDENTITIES.findIndex((known) => known === identity)] ?? null
  }
}

/** The client's TLS options for each combination of secret and identity, in the order in which to try them. */
export const clientTls = (setting: Redacted.Redacted<string>): ReadonlyArray<ConnectionOptions> =>
  secretsOf(setting).map(keyOf).flatMap((psk) =>
    IDENTITIES.map((identity) => ({
      ...SUITE,
      pskCallback: () => ({ psk, identity }),
      checkServerIdentity: () => undefined
    }))
  )
