#!/usr/bin/env node
// The program `parley`, run by npm's scripts, the package's bin and the image. Its syntax works on old versions of
// Node.
import "./any-node.js"
import "./require-node.js"

try {
  process.cwd()
} catch {
  console.error("parley: The current folder does not exist any more. Change to another folder.")
  process.exit(1)
}

const { programLoader } = await import("./bundle.js")
const load = await programLoader()

const commands = await load("Commands", "commands")
const args = process.argv.slice(2)
const [name, ...others] = args

// Only this user may read what Parley writes. The programs that `connect` starts keep the user's own mask.
if (name !== "connect") process.umask(0o077)

// A subcommand without arguments skips the argument parser, which takes a tenth of a second to load.
if (others.length === 0 && Object.hasOwn(commands, name)) {
  await commands[name]()
} else {
  const parley = await load("CommandLine", "parley")
  // A subcommand may have set a code of its own.
  const code = await parley(args)
  process.exitCode = process.exitCode || code
}
