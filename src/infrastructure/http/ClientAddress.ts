import { Option } from "effect"
import type { HttpServerRequest } from "effect/http"
import type { IncomingMessage } from "node:http"
import { BlockList, isIP, isIPv6 } from "node:net"

/**
 * The IP address of the client that made a request. Each of the `proxies` trusted proxies in front of the server
 * appends its peer's address to X-Forwarded-For. Therefore a trusted proxy wrote the entry at position `proxies` from
 * the right. The client may have forged every entry to the left of that entry.
 */
export const clientAddress = (
  remote: string | undefined,
  forwardedFor: string | undefined,
  proxies: number
): string => {
  if (proxies > 0 && forwardedFor !== undefined) {
    const entries = forwardedFor.split(",")
    const heard = normalize(entries[Math.max(0, entries.length - proxies)] ?? "")
    if (heard !== undefined) return heard
  }
  return normalize(remote ?? "") ?? "unknown"
}

/** The address of an HTTP request's client; `proxies` is TRUST_PROXY. */
export const addressOf = (request: HttpServerRequest.HttpServerRequest, proxies: number): string =>
  clientAddress(Option.getOrUndefined(request.remoteAddress), request.headers["x-forwarded-for"], proxies)

/** The address of the client of an upgrade; `proxies` is TRUST_PROXY. */
export const upgradeAddress = ({ headers, socket }: IncomingMessage, proxies: number): string => {
  const forwardedFor = headers["x-forwarded-for"]
  return clientAddress(socket.remoteAddress, forwardedFor === undefined ? undefined : String(forwardedFor), proxies)
}

/**
 * Whether a request comes from one of these addresses: the other side of the connection, and also the client, if a proxy
 * says that it forwards the request. Only `proxies` trusted proxies are believed, and only if they name an address.
 */
export const comesFrom = (
  request: HttpServerRequest.HttpServerRequest,
  contains: (address: string) => boolean,
  proxies: number
): boolean => {
  const { forwarded, "x-forwarded-for": forwardedFor } = request.headers
  if (!contains(addressOf(request, 0))) return false
  return forwardedFor === undefined
    ? forwarded === undefined
    : proxies > 0 && contains(clientAddress(undefined, forwardedFor, proxies))
}

/**
 * The key of rate limits per IP address: for IPv6 the subscriber's /64 network, because a subscriber has 2^64
 * addresses.
 */
export const addressKey = (address: string): string => {
  if (!isIPv6(address)) return address
  const [head = "", tail] = address.split("::")
  const groups = head === "" ? [] : head.split(":")
  if (tail !== undefined) {
    const right = tail === "" ? [] : tail.split(":")
    while (groups.length + right.length < 8) groups.push("0")
    groups.push(...right)
  }
  return `${groups.slice(0, 4).join(":")}::/64`
}

/** Returns a predicate for the addresses in these ranges: single addresses, or networks in CIDR notation. */
export const networksOf = (networks: ReadonlyArray<string>): (address: string) => boolean => {
  const list = new BlockList()
  for (const network of networks) {
    const [address = "", prefix] = network.split("/")
    const family = isIPv6(address) ? "ipv6" : "ipv4"
    if (prefix === undefined) list.addAddress(address, family)
    else list.addSubnet(address, Number(prefix), family)
  }
  return (address) => {
    const family = isIP(address)
    return family !== 0 && list.check(address, family === 6 ? "ipv6" : "ipv4")
  }
}

const MAPPED = /^::ffff:([0-9a-f]{1,4}):([0-9a-f]{1,4})$/

/**
 * The canonical form of an address: IPv4-mapped IPv6 becomes IPv4, and ports, brackets and zones are dropped. Undefined
 * if the text is not an address.
 */
const normalize = (text: string): string | undefined => {
  let address = text.trim()
  if (address.startsWith("[")) address = address.slice(1, address.indexOf("]"))
  else if (address.includes(".") && /:\d+$/.test(address) && !address.includes("::")) {
    address = address.slice(0, address.lastIndexOf(":"))
  }
  const zone = address.indexOf("%")
  if (zone !== -1) address = address.slice(0, zone)
  const family = isIP(address)
  if (family !== 6) return family === 4 ? address : undefined
  const canonical = new URL(`http://[${address}]`).hostname.slice(1, -1)
  const mapped = MAPPED.exec(canonical)
  if (mapped === null) return canonical
  const [high, low] = [Number.parseInt(mapped[1] ?? "", 16), Number.parseInt(mapped[2] ?? "", 16)]
  return [high >> 8, high & 255, low >> 8, low & 255].join(".")
}
