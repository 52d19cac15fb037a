import { Data, Schema } from "effect"
import { type Bundle, Notice, type PushOnWay } from "./Bundle.ts"

/** A text of another node is no bundle. */
export class BundleNotUnderstood extends Data.TaggedError("BundleNotUnderstood")<{ readonly message: string }> {}

/**
 * Reads a bundle. Says the same of every text as decoding it by the schema `Bundle` does (a test compares them), in a
 * fraction of the time: a push is a message on its way, and most bundles are small. Fields that the schema does not
 * know are left in place. Throws BundleNotUnderstood.
 */
export const readBundle = (text: string): typeof Bundle.Type => {
  const bundle = parse(text)
  if (
    !isObject(bundle) || !isList(bundle["sockets"], isSockets) || !isInteger(bundle["asks"]) || !isInteger(bundle["answers"]) ||
    !isList(bundle["rendered"], isRendered) || !isList(bundle["frames"], isText) || !isList(bundle["pushes"], isPush) ||
    !isList(bundle["notices"], isNotice) || ("since" in bundle && !isInteger(bundle["since"])) || typeof bundle["missed"] !== "boolean"
  ) {
    throw new BundleNotUnderstood({ message: "a bundle of another node has another shape" })
  }
  return bundle as unknown as typeof Bundle.Type
}

const parse = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    throw new BundleNotUnderstood({ message: "a bundle of another node is no JSON" })
  }
}

type Fields = Readonly<Record<string, unknown>>

const isObject = (value: unknown): value is Fields => typeof value === "object" && value !== null && !Array.isArray(value)
const isText = (value: unknown): boolean => typeof value === "string"
const isInteger = (value: unknown): boolean => Number.isSafeInteger(value)
const isList = (value: unknown, isItem: (item: unknown) => boolean): boolean => Array.isArray(value) && value.every(isItem)

const isSockets = (value: unknown): boolean =>
  Array.isArray(value) && value.length === 2 && typeof value[0] === "string" && isList(value[1], isInteger)

const isRendered = (value: unknown): boolean =>
  isObject(value) && typeof value["conversationId"] === "string" && isInteger(value["seq"]) && typeof value["before"] === "string" &&
  typeof value["after"] === "string"

const isAbout = (value: unknown): boolean =>
  isObject(value) && typeof value["senderId"] === "string" && typeof value["conversationId"] === "string"

const isPush = (value: unknown): boolean => {
  if (!isObject(value) || typeof value["to"] !== "string") return false
  switch (value["_tag"] as (typeof PushOnWay.Type)["_tag"]) {
    case "Hint":
      return isInteger(value["no"]) && typeof value["messageId"] === "string" && typeof value["senderId"] === "string" &&
        isInteger(value["rendered"]) && (!("trace" in value) || typeof value["trace"] === "string")
    case "Echo":
      return isInteger(value["after"]) && (value["before"] === null || isInteger(value["before"])) &&
        typeof value["messageId"] === "string" && isInteger(value["rendered"])
    case "Event":
      return isInteger(value["frame"]) && (!("about" in value) || isAbout(value["about"])) &&
        (!("after" in value) || isInteger(value["after"]))
    default:
      return false
  }
}

/** Notices are rare. */
const isNotice = Schema.is(Notice)
