// Prints help and the version with a Node that is too old for Parley. Its syntax works on old versions of Node.
import { readFileSync } from "node:fs"
import { isTooOld } from "./node-version.js"

const fileOf = (name) => readFileSync(new URL(name, import.meta.url), "utf8")

/** The help of the command that the first words name (help.txt is made by docs/help.ts). */
const helpOf = (words) => {
  const texts = new Map(
    fileOf("./help.txt").split(/^### /m).map((part) => {
      const end = part.indexOf("\n")
      return [part.slice(0, end), part.slice(end + 1)]
    })
  )
  const names = words.map((_, i) => ["parley", ...words.slice(0, words.length - i)].join(" "))
  return texts.get(names.find((name) => texts.has(name)) || "parley")
}

const args = process.argv.slice(2)
const has = (...flags) => args.some((arg) => flags.includes(arg))
const isHelp = has("--help", "-h")
if (isTooOld && (isHelp || has("--version", "-v"))) {
  process.stdout.write(
    isHelp
      ? helpOf(args.filter((arg) => !arg.startsWith("-")))
      : `parley ${JSON.parse(fileOf("../package.json")).version}\n`
  )
  process.exit(0)
}
