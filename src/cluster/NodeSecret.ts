import { Redacted } from "effect"
import { hkdfSync } from "node:crypto"
import type { ConnectionOptions, TlsOptions } from "node:tls"

const SUITE = { ciphers: "ECDHE-PSK-CHACHA20-POLY1305", minVersion: "TLSv1.2", maxVersion: "TLSv1.2" } as const

/** By the place of the server's secret that the client means: its own first one may be the server's second. */
const IDENTITIES = ["parley", "parley 2"] as const

/** The secrets in RUNNER_SECRET: the one in use, and while it is being changed the one before. */
export const secretsOf = (setting: Redacted.Redacted<string>): ReadonlyArray<string> =>
  Redacted.value(setting).split(",").map((part) => part.trim())

const keyOf = (secret: string): Buffer => Buffer.from(hkdfSync("sha256", secret, "", "parley between nodes", 32))

/** TLS with a pre-shared key: both sides prove that they know one of the server's secrets, and what they say is encrypted. */
export const serverTls = (setting: Redacted.Redacted<string>): TlsOptions => {
  const keys = secretsOf(setting).map(keyOf)
  return {
    ...SUITE,
    pskCallback: (_: unknown, identity: string) => keys[IDENTITIES.findIndex((known) => known === identity)] ?? null
  }
}

/** The ways in which a client may prove that it knows a secret, in the order in which they are to be tried. */
export const clientTls = (setting: Redacted.Redacted<string>): ReadonlyArray<ConnectionOptions> =>
  secretsOf(setting).map(keyOf).flatMap((psk) =>
    IDENTITIES.map((identity) => ({ ...SUITE, pskCallback: () => ({ psk, identity }), checkServerIdentity: () => undefined })))
