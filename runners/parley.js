#!/usr/bin/env node
// The program `parley`: what npm's scripts, the package's bin and the image run. Plain enough for any Node.
import "./require-node.js"

const { commands } = await import("./Commands.ts")
const args = process.argv.slice(2)
const [name, ...others] = args

// A subcommand by itself is run at once: the parser of arguments takes a tenth of a second to load.
if (others.length === 0 && Object.hasOwn(commands, name)) {
  await commands[name]()
} else {
  const { parley } = await import("./CommandLine.ts")
  if (!await parley(args)) process.exitCode = 1
}
