import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { basename, join, resolve } from "node:path"

/**
 * Writes THIRD-PARTY.txt: the licences of all packages that a server needs, with their texts, from node_modules. The
 * image and the npm package are made with it. Fails if a package names a licence of the GPL family whose text is not in
 * this folder, because the packages of sharp's prebuilt libraries name the LGPL without its text.
 */

const ROOT = resolve(import.meta.dirname, "..")

interface Locked {
  readonly version?: string
  readonly license?: string
  readonly dev?: boolean
}

const LICENCE_FILE = /^(licen[cs]e|copying|notice|third[-_]party)/i
const FAMILY = /\b[AL]?GPL-\d\.\d/g

/** The texts of a package's files about its licence; without such a file, what its README says about it. */
const textsOf = (folder: string): string => {
  const names = existsSync(folder) ? readdirSync(folder) : []
  const read = (name: string) => readFileSync(join(folder, name), "utf8").replaceAll("\r\n", "\n").trim()
  const texts = names.filter((name) => LICENCE_FILE.test(name)).sort().map(read)
  const readme = names.find((name) => /^readme\.md$/i.test(name))
  if (texts.length === 0 && readme !== undefined) texts.push(/^#+ licen[cs].*/ims.exec(read(readme))?.[0] ?? "")
  return texts.join("\n\n")
}

/** The collected text for the packages of a lock file, which are in `modules`. */
export const collect = (modules = join(ROOT, "node_modules"), lock = join(ROOT, "package-lock.json")): string => {
  const { packages } = JSON.parse(readFileSync(lock, "utf8")) as { readonly packages: Readonly<Record<string, Locked>> }
  const needed = Object.entries(packages).filter(([path, { dev }]) => path !== "" && dev !== true)
  const parts = needed.map(([path, { license, version }]) => {
    const name = path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length)
    if (license === undefined) throw new Error(`${name} names no licence in package-lock.json`)
    const family = [...new Set(license.match(FAMILY))].map((id) => `${id}.txt`)
    const missing = family.filter((file) => !existsSync(join(import.meta.dirname, file)))
    if (missing.length > 0)
      throw new Error(`${name} is under ${license}: put its text into licenses/ (${missing.join(", ")})`)
    const place = family.length === 0 ? "" : `The text of the licence is in ${family.join(" and ")}, beside this file.`
    return [
      `${"=".repeat(80)}\n${name} ${version}: ${license}`,
      place,
      textsOf(join(modules, path.slice("node_modules/".length)))
    ]
      .filter((text) => text !== "").join("\n\n")
  })
  return `${HEAD}\n${parts.join("\n\n")}\n`
}

const HEAD = `Parley uses these packages. Which of the packages of sharp (@img/…) are installed depends on the machine.

The libraries inside @img/sharp-libvips-… and @img/sharp-win32-… (libvips, glib, librsvg and others) are used under the GNU Lesser
General Public License, version 3 or later: LGPL-3.0.txt, which adds permissions to the GNU General Public License, GPL-3.0.txt.
They are linked dynamically: you may replace the files in node_modules/@img with libraries that you have changed and
built yourself. Their sources and how they are built: https://github.com/lovell/sharp-libvips, at the tag of the package's version.
`

if (basename(process.argv[1] ?? "") === "Collect.ts")
  writeFileSync(join(import.meta.dirname, "THIRD-PARTY.txt"), collect())
