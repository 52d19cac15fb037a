import { mkdir, readdir, readFile } from "node:fs/promises"
import { join } from "node:path"
import { freePort } from "../../runners/local/FreePort.ts"
import { form, pkce, register } from "../../test/signin/Flow.ts"
import { run } from "../hosts/Install.ts"
import type { Person, Seen } from "./Person.ts"
import type { Place } from "./Programs.ts"
import { connectionsOf } from "./Tokens.ts"

const LIMIT_MS = 180_000
const EXPECTED = join(import.meta.dirname, "expected-failures.yml")

/** One check of the conformance suite, as the suite writes it. */
interface Check {
  readonly id: string
  readonly status: "SUCCESS" | "FAILURE" | "WARNING" | "SKIPPED" | "INFO"
  readonly errorMessage?: string
}

/** A check's verdict, and its problem. */
export interface Verdict {
  readonly check: string
  readonly problem: string
}

const expectedFailures = async (): Promise<ReadonlySet<string>> =>
  new Set(Array.from((await readFile(EXPECTED, "utf8")).matchAll(/^ *- (\S+)$/gm), ([, id]) => id ?? ""))

/** Every check that the suite has written into its folder of results. */
const checksIn = async (folder: string): Promise<ReadonlyArray<Check>> => {
  const names = (await readdir(folder, { recursive: true })).filter((name) => name.endsWith("checks.json")).toSorted()
  return (await Promise.all(
    names.map(async (name) => JSON.parse(await readFile(join(folder, name), "utf8")) as ReadonlyArray<Check>)
  )).flat()
}

/**
 * The suite's scenarios for an authorization server. The suite prints the URL that the person opens, and waits for the
 * browser.
 */
export const conformance = async (
  { agent, home, note, url }: Place,
  person: Person
): Promise<ReadonlyArray<Verdict>> => {
  const port = await freePort()
  const redirectUri = `http://127.0.0.1:${port}/callback`
  const registered = await register({ url }, { redirect_uris: [redirectUri], client_name: "Conformance suite" })
  const clientId = String(registered.body.client_id)
  const results = join(home.folder, "results")
  await mkdir(results)
  let output = ""
  let seen: Promise<Seen> | undefined
  const ended = await run(
    "conformance",
    ["authorization", "--url", url, "--client-id", clientId, "--port", String(port), "--output-dir", results],
    {
      cwd: home.work,
      env: home.env,
      limitMs: LIMIT_MS,
      heard: (text) => {
        output += text
        const [asked] = /^http\S+\/authorize\?\S+$/m.exec(output) ?? []
        if (asked !== undefined) seen ??= person.allow(asked, agent)
      }
    }
  )
  note(`${ended.output}\n(exit code ${ended.code})`)
  const checks = await checksIn(results)
  const expected = await expectedFailures()
  const failed = (check: Check): boolean => check.status !== "SUCCESS" && check.status !== "INFO"
  const verdicts = checks.map((check): Verdict => ({
    check: expected.has(check.id) ? `${check.id} (expected to fail)` : check.id,
    problem: failed(check) === expected.has(check.id)
      ? ""
      : failed(check)
      ? `${check.status}: ${check.errorMessage ?? ""}`
      : "it passes, and expected-failures.yml lists it"
  }))
  if (seen === undefined) return [...verdicts, { check: "asks a person to sign in", problem: ended.output.slice(-200) }]
  // The suite has exchanged the code. Somebody who has seen the code presents it once more.
  const { back } = await seen
  const before = await connectionsOf(url, agent)
  const again = await form(`${url}/token`, {
    grant_type: "authorization_code",
    code: new URL(back).searchParams.get("code") ?? "",
    client_id: clientId,
    redirect_uri: redirectUri,
    code_verifier: pkce().verifier
  })
  const after = await connectionsOf(url, agent)
  const problem = again.body?.error !== "invalid_grant"
    ? `the code was answered with ${again.status}`
    : before.length === 1 && after.length === 0
    ? ""
    : `the agent has ${after.length} connections after ${before.length}`
  return [...verdicts, { check: "its code, used again, ends the connection", problem }]
}
