/** A sentence about each kind of command: `{from}` stands for the command's field `from`. */
export type Sentences<C extends { readonly _tag: string }> = Readonly<Record<C["_tag"], string>>

const valueInWords = (value: unknown): string => {
  if (Array.isArray(value)) return value.map(valueInWords).join(", ")
  if (typeof value !== "object") return String(value)
  if (value === null) return "none"
  if ("byCaller" in value && "state" in value) {
    return `${value.byCaller === true ? "the caller" : "the called agent"} says ${
      value.state === null ? "no state" : String(value.state)
    }`
  }
  return "from" in value && "to" in value && "key" in value
    ? `agent ${String(value.from)} to agent ${String(value.to)} with key ${String(value.key)}`
    : JSON.stringify(value)
}

/** Makes a function that describes a command in words. */
export const inWordsBy = <C extends { readonly _tag: string }>(sentences: Sentences<C>) => (command: C): string =>
  sentences[command._tag as C["_tag"]].replace(
    /\{(\w+)\}/g,
    (_, field: string) => valueInWords((command as Readonly<Record<string, unknown>>)[field])
  )
