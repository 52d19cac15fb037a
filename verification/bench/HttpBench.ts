import { spawn } from "node:child_process"
import { join } from "node:path"
import { freePort } from "../../runners/local/FreePort.ts"
import { registerAgents } from "../../test/support/RegisterAgents.ts"
import { here } from "./Checkout.ts"
import { cleanUp, whenOver } from "./CleanUps.ts"
import { probe } from "./Contender.ts"
import type { HttpResult } from "./Load.ts"
import { LoadProcess } from "./LoadProcess.ts"
import { json, percent, printProfile, table } from "./Report.ts"
import { startRig, untilAnswers } from "./Rig.ts"
import { median } from "./Statistics.ts"

/** Compares GET /v1/agents/me with the bare endpoint of BareApi.ts, in alternating rounds. */
export const benchHttp = async (
  { profile, short }: { readonly profile: boolean; readonly short: boolean },
  say: (text: string) => void
): Promise<void> => {
  const { folder, outbox, servers: [server] } = await startRig(
    { database: "pglite", nodes: 0, balancer: undefined, stored: 0, checkout: here },
    {},
    say
  )
  if (server === undefined) throw new Error("no server")
  const [agent] = await registerAgents(server.url, outbox, ["bench-0"])
  const port = await freePort()
  const bare = spawn(process.execPath, [join(import.meta.dirname, "BareApi.ts")], {
    env: { PATH: process.env["PATH"], PORT: String(port) },
    stdio: "ignore"
  })
  whenOver(async () => bare.kill("SIGKILL"))
  await untilAnswers(`http://127.0.0.1:${port}/v1/agents/me`)
  const load = new LoadProcess()
  const plan = { host: "127.0.0.1", path: "/v1/agents/me", key: agent!.key, inFlight: 32, seconds: short ? 2 : 6 }
  const rounds: Array<{ readonly parley: HttpResult; readonly bare: HttpResult }> = []
  for (let round = 0; round < (short ? 1 : 5); round++) {
    if (profile && round === 0) {
      const file = join(folder, "window.cpuprofile")
      await probe(server, { probe: "profile-start" })
      const { perSecond, serverCpu } = await load.ask("http", { ...plan, port: server.port, serverPid: server.pid })
      await probe(server, { probe: "profile-stop", file })
      printProfile("GET /v1/agents/me", file, serverCpu)
      say(`${perSecond.toFixed(0)} req/s while profiled`)
    }
    rounds.push({
      bare: await load.ask("http", { ...plan, port, serverPid: bare.pid! }),
      parley: await load.ask("http", { ...plan, port: server.port, serverPid: server.pid })
    })
  }
  await cleanUp()
  const figures = (side: "parley" | "bare") => {
    const speeds = rounds.map((round) => round[side].perSecond)
    return {
      perSecond: median(speeds),
      from: Math.min(...speeds),
      to: Math.max(...speeds),
      cpu: median(rounds.map((round) => round[side].serverCpu))
    }
  }
  const ours = figures("parley")
  const theirs = figures("bare")
  const ratio = median(rounds.map((round) => round.parley.perSecond / round.bare.perSecond))
  const row = (
    name: string,
    f: typeof ours
  ) => [name, f.perSecond.toFixed(0), `${f.from.toFixed(0)} to ${f.to.toFixed(0)}`, f.cpu.toFixed(0)]
  console.log(table([
    ["GET /v1/agents/me, 32 in flight", "req/s", "spread", "CPU µs"],
    row("Parley, authenticated", ours),
    row("bare HttpApi endpoint", theirs)
  ]))
  console.log(
    `Parley has ${percent(ratio)} of the bare endpoint's speed (median of ${rounds.length} rounds taken in turn)`
  )
  console.log(json({ bench: "http", parley: ours, bare: theirs, ratio }))
}
