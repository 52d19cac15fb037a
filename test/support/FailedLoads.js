import { registerHooks } from "node:module"

// Lets the first load of a module fail as if too many files were open, once for each text that FAILED_LOADS matches in
// the URLs of modules.
const pattern = new RegExp(process.env.FAILED_LOADS)
const failed = new Set()

registerHooks({
  load: (url, context, next) => {
    const [found] = pattern.exec(url) ?? []
    if (found !== undefined && !failed.has(found)) {
      failed.add(found)
      throw Object.assign(new Error(`EMFILE: too many open files, open '${url}'`), { code: "EMFILE" })
    }
    return next(url, context)
  }
})
