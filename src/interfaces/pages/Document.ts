import { createHash } from "node:crypto"
import type { Assets } from "./Assets.ts"

/** A page's HTML, and its Content-Security-Policy. */
export interface Document {
  readonly html: string
  readonly policy: string
}

/** Escapes a text for HTML. */
export const escaped = (text: string): string => text.replace(/[&<>"']/g, (char) => `&#${char.charCodeAt(0)};`)

/**
 * The Content-Security-Policy of a page. The page may run only this server's modules and its import map, and may not
 * run text as code (`trusted-types 'none'`). It may connect only to this server and to `stores`. No page may embed it
 * in a frame.
 */
const policyOf = (importMap: string | undefined, stores: ReadonlyArray<string>): string =>
  [
    "default-src 'none'",
    importMap === undefined
      ? "script-src 'self'"
      : `script-src 'self' 'sha256-${createHash("sha256").update(importMap).digest("base64")}'`,
    "style-src 'self'",
    "img-src 'self' blob: data:",
    "media-src blob:",
    `connect-src ${["'self'", ...stores].join(" ")}`,
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'"
  ].join("; ")

interface Contents {
  readonly title: string
  /** The module that the page runs. Without it, the page runs only the script of the theme. */
  readonly entry?: string
  readonly styles?: ReadonlyArray<string>
  /** The HTML of the page's body. */
  readonly body: string
  /**
   * The relative path from the page to the server's root, for example `../`. Absent if the page is directly below the
   * root.
   */
  readonly root?: string
  /** The value of `REGISTRATION` and the mail domains, for pages with a form for registration. */
  readonly registration?: string
  /** Origins besides the server's own to which the page's scripts may connect. */
  readonly stores?: ReadonlyArray<string>
}

/** Makes a page. All URLs in the page are relative, so that the page works behind a proxy that adds a path. */
export const documentOf = (
  assets: Assets,
  { body, entry, registration, root = "", stores = [], styles = [], title }: Contents
): Document => {
  const base = `${root}assets/${assets.version}/`
  const importMap = entry === undefined ? undefined : JSON.stringify({
    imports: Object.fromEntries(Object.entries(assets.packages).map(([name, path]) => [name, `./${base}${path}`]))
  })
  const html = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>${escaped(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1, viewport-fit=cover">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">${
    registration === undefined ? "" : `\n<meta name="registration" content="${escaped(registration)}">`
  }
<link rel="icon" href="${base}shared/icon.svg" type="image/svg+xml">
${["shared/style.css", ...styles].map((path) => `<link rel="stylesheet" href="${base}${path}">`).join("\n")}
<script src="${base}shared/FirstPaint.js"></script>
${
    importMap === undefined ? "" : `<script type="importmap">${importMap}</script>
<script type="module" src="${base}${entry}"></script>`
  }
</head>
<body>
${body}
</body>
</html>
`
  return { html, policy: policyOf(importMap, stores) }
}
