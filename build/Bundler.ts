import { mkdirSync, realpathSync, writeFileSync } from "node:fs"
import http from "node:http"
import { dirname, join, relative, resolve } from "node:path"
import { rolldown } from "rolldown"

const ROOT = resolve(import.meta.dirname, "..")

/**
 * Node reads all exports of a built-in module that a file imports. Two exports of `node:http` load Node's HTTP client,
 * which a server does not use, so this module stands for it and exports the others.
 */
const HTTP = "node:http"
const httpModule = (): string => {
  const properties = Object.entries(Object.getOwnPropertyDescriptors(http))
  const names = properties.filter(([, { get }]) => get === undefined).map(([name]) => name)
  return `const http = process.getBuiltinModule("node:http")
export default http
export const { ${names.join(", ")} } = http`
}

/** The path of a file of the program, relative to the root of the checkout or of the package. */
type Place = (source: string) => string

/** Imports the modules of effect one by one, because the index of a folder of effect would load all of its modules. */
const withoutIndexes = (code: string): string =>
  code.replaceAll(
    /import \{([^}]+)\} from "(effect(?:\/[a-z-]+)?)"/g,
    (_, names: string, index: string) =>
      names.split(",").map((name) => name.trim()).filter((name) => name !== "" && !name.startsWith("type ")).map(
        (name) => {
          const [module = "", local = module] = name.split(" as ")
          return `import * as ${local} from "${index}/${module}"`
        }
      ).join("\n")
  )

/**
 * Bundles the program, its sources and effect, into the folder `out`, and syncs the files to disk. Other packages are
 * loaded from `node_modules` as ever. Each source file keeps its own place for `import.meta`, which `root` and `place`
 * give: `root` is relative to `out`.
 */
const bundle = async (out: string, root: string, place: Place): Promise<void> => {
  const made = await rolldown({
    input: { Commands: join(ROOT, "runners/Commands.ts"), CommandLine: join(ROOT, "runners/CommandLine.ts") },
    platform: "node",
    logLevel: "warn",
    // No code is left out, because code that seems to have no effect may throw.
    treeshake: false,
    external: (id, importer) =>
      id !== HTTP && !/^[./#]/.test(id) && importer !== undefined && !/^(effect|@effect\/[\w-]+)(\/|$)/.test(id),
    plugins: [{
      name: "http",
      resolveId: (id) => id === HTTP ? `\0${HTTP}` : undefined,
      load: (id) => id === `\0${HTTP}` ? httpModule() : undefined
    }, {
      name: "own-files",
      transform: (code, id) => {
        if (id.includes("/node_modules/")) return undefined
        const path = JSON.stringify(join(root, place(relative(ROOT, id))))
        const folder = JSON.stringify(join(root, dirname(relative(ROOT, id))))
        const joined = (to: string) => `process.getBuiltinModule("node:path").join(import.meta.dirname, ${to})`
        const own: Readonly<Record<string, string>> = {
          url: `new URL(${path}, import.meta.url).href`,
          filename: joined(path),
          dirname: joined(folder)
        }
        return withoutIndexes(code).replaceAll(/import\.meta\.(url|filename|dirname)/g, (_, name: string) => own[name]!)
      }
    }]
  })
  const { output } = await made.generate({ format: "esm", comments: false, chunkFileNames: "[name]-[hash].js" })
  await made.close()
  const write = (name: string, content: string | Uint8Array) => writeFileSync(join(out, name), content, { flush: true })
  for (const file of output) write(file.fileName, file.type === "chunk" ? file.code : file.source)
  write("package.json", `{ "type": "module" }\n`)
}

/** Makes the bundle of a checkout in a folder that exists. */
export const checkoutBundle = (folder: string): Promise<void> =>
  // `node_modules` may be a link to that of another checkout.
  bundle(folder, relative(realpathSync(folder), ROOT), (source) => source)

/** Makes the bundle of the package, beside its compiled files. */
export const packBundle = async (folder: string): Promise<void> => {
  mkdirSync(folder, { recursive: true })
  await bundle(folder, "..", (source) => source.replace(/\.ts$/, ".js"))
}
