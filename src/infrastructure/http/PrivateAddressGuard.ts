import { absoluteUrl } from "#infrastructure/wire/AbsoluteUrl"
import { Context, Data, Effect } from "effect"
import { lookup, Resolver } from "node:dns/promises"
import { BlockList, isIP, isIPv4 } from "node:net"

/** The networks that a request to an untrusted URL may reach besides the public internet. */
export type AllowPrivate = "none" | "loopback" | "all"

/** A host name could not be resolved, so its addresses are unknown. */
export class LookupFailed extends Data.TaggedError("LookupFailed")<{ readonly reason: string }> {}

/** The URL is invalid, or leads to an address that is not allowed. */
export class TargetRefused extends Data.TaggedError("TargetRefused")<{ readonly reason: string }> {}

const lookupFailed = (cause: unknown): LookupFailed =>
  new LookupFailed({ reason: cause instanceof Error ? cause.message : String(cause) })

/** The time-out of a query to a name server, in milliseconds, and how many times the query is sent. */
const QUERY = { timeout: 2_000, tries: 2 }

/**
 * Queries the name servers directly, by default the name servers of this machine. A look-up by the operating system
 * would occupy one of the few threads of the process until the name servers respond. A few names whose servers never
 * respond would delay all other look-ups and all file operations.
 */
export const askNameServers = (
  hostname: string,
  servers?: ReadonlyArray<string>
): Effect.Effect<ReadonlyArray<string>, LookupFailed> =>
  Effect.suspend(() => {
    const resolver = new Resolver(QUERY)
    if (servers !== undefined) resolver.setServers(servers)
    return Effect.tryPromise({
      try: async () => {
        const [v4, v6] = await Promise.allSettled([resolver.resolve4(hostname), resolver.resolve6(hostname)])
        if (v4.status === "rejected" && v6.status === "rejected") throw v4.reason
        return [v4, v6].flatMap((found) => found.status === "fulfilled" ? found.value : [])
      },
      catch: lookupFailed
    }).pipe(Effect.onInterrupt(() => Effect.sync(() => resolver.cancel())))
  })

/**
 * Asks the operating system, because names of private networks may be in the hosts file or in a search domain, which
 * only the operating system knows.
 */
const askSystem = (hostname: string): Effect.Effect<ReadonlyArray<string>, LookupFailed> =>
  Effect.map(
    Effect.tryPromise({ try: () => lookup(hostname, { all: true, verbatim: true }), catch: lookupFailed }),
    (found) => found.map(({ address }) => address)
  )

/** Resolves a host name to all of its addresses. Tests replace it. */
export const NameLookup = Context.Reference<
  (hostname: string, allow: AllowPrivate) => Effect.Effect<ReadonlyArray<string>, LookupFailed>
>("parley/http/NameLookup", {
  defaultValue: () => (hostname, allow) => allow === "none" ? askNameServers(hostname) : askSystem(hostname)
})

const listOf = (family: "ipv4" | "ipv6", ...subnets: ReadonlyArray<readonly [string, number]>): BlockList => {
  const list = new BlockList()
  for (const [net, prefix] of subnets) list.addSubnet(net, prefix, family)
  return list
}

/** IPv4 networks that are not public: IANA's special-purpose registry, multicast and the reserved ranges. */
const PRIVATE_V4 = listOf(
  "ipv4",
  ["0.0.0.0", 8],
  ["10.0.0.0", 8],
  ["100.64.0.0", 10],
  ["127.0.0.0", 8],
  ["169.254.0.0", 16],
  ["172.16.0.0", 12],
  ["192.0.0.0", 24],
  ["192.0.2.0", 24],
  ["192.88.99.0", 24],
  ["192.168.0.0", 16],
  ["198.18.0.0", 15],
  ["198.51.100.0", 24],
  ["203.0.113.0", 24],
  ["224.0.0.0", 3]
)

/**
 * Global unicast IPv6. Mapped and translated IPv4, link-local, unique local and multicast addresses lie outside of it.
 */
const GLOBAL_V6 = listOf("ipv6", ["2000::", 3])

/**
 * Networks within `GLOBAL_V6` that are not public, or whose addresses embed an IPv4 address that is not checked:
 * Teredo, 6to4, documentation.
 */
const SPECIAL_V6 = listOf("ipv6", ["2001::", 23], ["2001:db8::", 32], ["2002::", 16], ["3fff::", 20])

const LOOPBACK_V4 = listOf("ipv4", ["127.0.0.0", 8])
const LOOPBACK_V6 = listOf("ipv6", ["::1", 128])

/** Classifies an IP address. Text that is not an address counts as private. */
export const placeOf = (address: string): "public" | "loopback" | "private" => {
  if (isIPv4(address)) {
    return LOOPBACK_V4.check(address) ? "loopback" : PRIVATE_V4.check(address) ? "private" : "public"
  }
  // An address with a zone (`%eth0`) is valid on one link only.
  if (isIP(address) !== 6 || address.includes("%")) return "private"
  // Only IPv6 lists are checked, because a BlockList of IPv4 networks would match mapped addresses (`::ffff:0:0/96`)
  // too.
  if (LOOPBACK_V6.check(address, "ipv6")) return "loopback"
  return GLOBAL_V6.check(address, "ipv6") && !SPECIAL_V6.check(address, "ipv6") ? "public" : "private"
}

export const isAllowed = (address: string, allow: AllowPrivate): boolean => {
  const place = placeOf(address)
  return place === "public" || allow === "all" || (place === "loopback" && allow === "loopback")
}

/** Parses an untrusted URL. It must be an http or https URL that `absoluteUrl` accepts. */
export const parseTarget = (text: string): Effect.Effect<URL, TargetRefused> =>
  Effect.suspend(() => {
    const refused = (reason: string) => Effect.fail(new TargetRefused({ reason }))
    if (!/^https?:\/\//i.test(text)) return refused("must begin with http:// or https://")
    const url = absoluteUrl(text)
    return url === undefined
      ? refused("must be a URL without a user name, a password, blanks and backslashes")
      : Effect.succeed(url)
  })

/** The host of a URL as DNS and sockets expect it: IPv6 without brackets. */
export const hostOf = (url: URL): string => url.hostname.replace(/^\[|\]$/g, "")

const isLocalName = (host: string): boolean => /(^|\.)localhost\.?$/.test(host)

/**
 * Returns the addresses of a URL's host. If one of them is not allowed, the URL is refused. The caller must connect
 * only to the returned addresses and must not resolve the name again, because another look-up could return other
 * addresses.
 */
export const checkedAddresses = Effect.fnUntraced(function*(
  url: URL,
  allow: AllowPrivate
): Effect.fn.Return<ReadonlyArray<string>, TargetRefused | LookupFailed> {
  const host = hostOf(url)
  const refused = new TargetRefused({ reason: "leads to a private network" })
  if (isLocalName(host) && allow === "none") return yield* refused
  const addresses = isIP(host) !== 0 ? [host] : yield* (yield* NameLookup)(host, allow)
  if (addresses.length === 0) return yield* new LookupFailed({ reason: `${host} has no address` })
  if (!addresses.every((address) => isAllowed(address, allow))) return yield* refused
  return addresses
})
