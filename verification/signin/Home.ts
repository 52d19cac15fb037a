import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { eventually } from "../../test/support/Eventually.ts"
import { pathWith } from "../hosts/Install.ts"

/** A pair of tokens, as a program has stored it. */
export interface Tokens {
  readonly access: string
  readonly refresh: string
}

// The inspector's store has JSON in the texts of its JSON.
const ACCESS = /(?<=")oat_[\w-]{43}(?=\\?")/
const REFRESH = /(?<=")ort_[\w-]{43}(?=\\?")/
const EXPIRES = /("expires_?at"\s*:\s*)\d+(\.\d+)?/i
const DEAD = `oat_${"x".repeat(43)}`

/** A new home folder for a program. Its browser is a script that writes down each URL that it is told to open. */
export class Home {
  readonly folder: string
  /** The folder in which the program is started. */
  readonly work: string
  readonly env: Readonly<Record<string, string>>
  private readonly urls: string
  private taken = 0

  private constructor(folder: string, program: string) {
    this.folder = folder
    this.work = join(folder, "work")
    this.urls = join(folder, "urls")
    const browser = join(folder, "bin/xdg-open")
    this.env = {
      BROWSER: browser,
      HOME: folder,
      NO_COLOR: "1",
      PATH: `${dirname(browser)}:${pathWith(program)}`,
      TMPDIR: join(folder, "tmp")
    }
  }

  /** `program` is the folder in which npm has installed the program. */
  static async make(program: string): Promise<Home> {
    const home = new Home(await mkdtemp(join(tmpdir(), "parley-signin-")), program)
    for (const name of ["bin", "tmp", "work"]) await mkdir(join(home.folder, name))
    await writeFile(home.urls, "")
    await writeFile(join(home.folder, "bin/xdg-open"), `#!/bin/sh\nprintf '%s\\n' "$1" >> '${home.urls}'\n`, {
      mode: 0o755
    })
    return home
  }

  async write(name: string, text: string): Promise<void> {
    await mkdir(dirname(join(this.folder, name)), { recursive: true })
    await writeFile(join(this.folder, name), text)
  }

  /** Waits until the program opens its browser once more, and returns the URL. */
  opened(): Promise<string> {
    const at = this.taken++
    return eventually(
      "a program to open its browser",
      async () => (await readFile(this.urls, "utf8")).split("\n").slice(0, -1)[at]
    )
  }

  /** How many URLs the program has opened that nobody has asked for. */
  async unasked(): Promise<number> {
    return (await readFile(this.urls, "utf8")).split("\n").length - 1 - this.taken
  }

  /** The tokens in the program's store. */
  async tokens(): Promise<Tokens> {
    for (const name of await this.stores()) {
      const text = await readFile(name, "utf8")
      const [access, refresh] = [ACCESS.exec(text)?.[0], REFRESH.exec(text)?.[0]]
      if (access !== undefined && refresh !== undefined) return { access, refresh }
    }
    throw new Error("no file in its home has tokens")
  }

  /** Makes the access token in the program's store invalid, as if it had expired. */
  async expire(): Promise<void> {
    for (const name of await this.stores()) {
      const text = await readFile(name, "utf8")
      if (ACCESS.test(text))
        await writeFile(
          name,
          text.replace(ACCESS, DEAD).replace(EXPIRES, (_, name: string) => `${name}1`)
        )
    }
  }

  private async stores(): Promise<ReadonlyArray<string>> {
    const names = await readdir(this.folder, { recursive: true })
    return names.filter((name) => name.endsWith(".json")).map((name) => join(this.folder, name))
  }

  async remove(): Promise<void> {
    await rm(this.folder, { recursive: true, force: true, maxRetries: 3 })
  }
}
