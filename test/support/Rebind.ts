import type { LookupOptions } from "node:dns"
import dns from "node:dns/promises"
import { syncBuiltinESMExports } from "node:module"

/**
 * Preloaded into a server, a resolver that an attacker has: `once.rebind.example`
 * leads to a public address when it is first asked for and to this machine from then
 * on, `mixed.rebind.example` to both at once. Says on standard output what it was asked.
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
