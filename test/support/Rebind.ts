import type { LookupOptions } from "node:dns"
import dns from "node:dns/promises"
import { syncBuiltinESMExports } from "node:module"

/**
 * Preloaded into a server: DNS look-ups with the answers of an attacker's name server (DNS rebinding).
 * `once.rebind.example` resolves to a public address the first time and to this machine from then on,
 * `mixed.rebind.example` to both at once. Each look-up is printed on standard output.
 */
const real = dns.lookup
let asked = 0

const lookup = async (hostname: string, options?: LookupOptions): Promise<unknown> => {
  if (!hostname.endsWith(".rebind.example")) return options === undefined ? real(hostname) : real(hostname, options)
  const away = { address: "8.8.8.8", family: 4 }
  const home = { address: "127.0.0.1", family: 4 }
  const found = hostname.startsWith("mixed.") ? [away, home] : [asked === 0 ? away : home]
  if (hostname.startsWith("once.")) asked++
  process.stdout.write(`asked for ${hostname}: ${found.map(({ address }) => address).join(" ")}\n`)
  return found
}

Object.assign(dns, { lookup })
syncBuiltinESMExports()
