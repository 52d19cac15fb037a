import dns from "node:dns/promises"

/**
 * Preloaded into a server: DNS look-ups with the answers of an attacker's name server (DNS rebinding).
 * `once.rebind.example` resolves to a public address the first time and to this machine from then on,
 * `mixed.rebind.example` to both at once. Each look-up is printed on standard output.
 */
type Resolve = (this: dns.Resolver, hostname: string) => Promise<ReadonlyArray<string>>

const { prototype } = dns.Resolver
const real: { readonly resolve4: Resolve; readonly resolve6: Resolve } = {
  resolve4: prototype.resolve4,
  resolve6: prototype.resolve6
}
let asked = 0

const isOurs = (hostname: string): boolean => hostname.endsWith(".rebind.example")

const resolve4: Resolve = async function(hostname) {
  if (!isOurs(hostname)) return real.resolve4.call(this, hostname)
  const found = hostname.startsWith("mixed.") ? ["8.8.8.8", "127.0.0.1"] : [asked === 0 ? "8.8.8.8" : "127.0.0.1"]
  if (hostname.startsWith("once.")) asked++
  process.stdout.write(`asked for ${hostname}: ${found.join(" ")}\n`)
  return found
}

const resolve6: Resolve = async function(hostname) {
  if (!isOurs(hostname)) return real.resolve6.call(this, hostname)
  throw new Error("no address of this family")
}

Object.assign(prototype, { resolve4, resolve6 })
