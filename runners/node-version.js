// Which Node Parley needs. Its syntax works on old versions of Node.
const [major, minor] = process.versions.node.split(".").map(Number)

export const NEEDED = "24.11"

export const isTooOld = major < 24 || (major === 24 && minor < 11)
