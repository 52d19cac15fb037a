import type { ComponentChild, ComponentChildren, VNode } from "preact"
import { Markdown } from "../../src/doors/pages/content/Markdown.js"
import { tokensOf } from "../../src/doors/pages/content/Tokens.js"
import { Copy } from "../../src/doors/pages/shared/Copy.js"

/** An element that the page would make, with what is in it. */
export interface Shown {
  readonly tag: string
  readonly props: Readonly<Record<string, unknown>>
  readonly children: ReadonlyArray<Shown | string>
}

const listed = (children: ComponentChildren): ReadonlyArray<ComponentChild> =>
  Array.isArray(children) ? children.flatMap(listed) : [children as ComponentChild]

const expanded = (child: ComponentChild): ReadonlyArray<Shown | string> => {
  if (child === null || child === undefined || typeof child === "boolean") return []
  if (typeof child !== "object") return [String(child)]
  const { props, type } = child as VNode<Record<string, unknown>>
  // The button has state, which needs a page.
  if (type === Copy) return []
  if (typeof type === "function") return listed((type as (props: unknown) => ComponentChildren)(props)).flatMap(expanded)
  return [{ tag: type, props, children: listed(props["children"] as ComponentChildren).flatMap(expanded) }]
}

/** What the page makes of a text; undefined if it shows the text as it is written. */
export const shown = (text: string): Shown | undefined => {
  const tokens = tokensOf(text)
  const [root] = tokens === undefined ? [] : expanded(Markdown({ tokens, tab: 0 }))
  return typeof root === "string" ? undefined : root
}

/** All elements, from the outside to the inside. */
export const elementsOf = (root: Shown): ReadonlyArray<Shown> =>
  [root, ...root.children.flatMap((child) => typeof child === "string" ? [] : elementsOf(child))]

/** The text that a person sees, without the targets of links and the names of languages, which the page adds. */
export const seen = (root: Shown | string): string =>
  typeof root === "string"
    ? root
    : root.tag === "br" ? "\n" : root.props["class"] === "target" || root.props["class"] === "unseen" ? "" : root.children.map((child) =>
      typeof child !== "string" && child.tag === "p" && root.props["class"] === "code" ? "" : seen(child)).join("")
