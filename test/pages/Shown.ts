/** A module of the pages. Its types need those of browsers, which the tests do not have. */
const moduleOf = (path: string) => import(new URL(`../../src/interfaces/pages/${path}`, import.meta.url).href)
const { Markdown } = await moduleOf("content/Markdown.js")
const { tokensOf } = await moduleOf("content/Tokens.js")
const { Code } = await moduleOf("content/Code.js")
const { Copy } = await moduleOf("shared/Copy.js")

interface Element {
  readonly type: string | ((props: unknown) => Child)
  readonly props: Readonly<Record<string, unknown>>
}
type Child = Element | string | number | boolean | null | undefined | ReadonlyArray<Child>

/** An element that the page would make, with what is in it. */
export interface Shown {
  readonly tag: string
  readonly props: Readonly<Record<string, unknown>>
  readonly children: ReadonlyArray<Shown | string>
}

const expanded = (child: Child): ReadonlyArray<Shown | string> => {
  if (child === null || child === undefined || typeof child === "boolean") return []
  if (typeof child !== "object") return [String(child)]
  if (Array.isArray(child)) return child.flatMap(expanded)
  const { props, type } = child as Element
  // The button and the colours have state, which needs a page.
  if (type === Copy) return []
  if (type === Code) return [{ tag: "code", props: {}, children: [String(props["text"])] }]
  return typeof type === "function"
    ? expanded(type(props))
    : [{ tag: type, props, children: expanded(props["children"] as Child) }]
}

/** What the page makes of a text; undefined if it shows the text as it is written. */
export const shown = (text: string): Shown | undefined => {
  const tokens = tokensOf(text)
  const [root] = tokens === undefined ? [] : expanded(Markdown({ tokens, tab: 0 }))
  return typeof root === "string" ? undefined : root
}

/** All elements, from the outside to the inside. */
export const elementsOf = (
  root: Shown
): ReadonlyArray<Shown> => [
  root,
  ...root.children.flatMap((child) => typeof child === "string" ? [] : elementsOf(child))
]

/**
 * The text that a person sees, without what the page adds or CommonMark leaves out: targets, languages, definitions.
 */
export const seen = (root: Shown | string): string => {
  if (typeof root === "string") return root
  if (root.tag === "br") return "\n"
  if (["target", "unseen", "language", "definition"].includes(String(root.props["class"]))) return ""
  return root.children.map(seen).join("")
}
