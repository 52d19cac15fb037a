import { mkdir, writeFile } from "node:fs/promises"
import { loadavg } from "node:os"
import { dirname, join, resolve } from "node:path"
import { startApart } from "./Apart.ts"
import { checkOut, here } from "./Checkout.ts"
import { cleanUp } from "./CleanUps.ts"
import { type Contender, type ContenderOptions, type Outcome, startContender, startFloor } from "./Contender.ts"
import { missingEjabberd, startEjabberd } from "./Ejabberd.ts"
import { benchHttp } from "./HttpBench.ts"
import { type IdleResult, weighIdle } from "./IdleSockets.ts"
import { benchMcp } from "./McpBench.ts"
import { HELP, optionsOf, Usage } from "./Options.ts"
import { svg } from "./Plot.ts"
import { figuresOf } from "./Ratios.ts"
import { json, plotsOf, printFigures, printIdle, printOutcome, printProfile } from "./Report.ts"
import { nameOf, type Subject } from "./Rig.ts"
import { FLOOR } from "./Scene.ts"
import { isWhole } from "./Verdict.ts"
import { fullLabel, windowsOf } from "./Window.ts"

const say = (text: string) => console.error(text)

const readOptions = () => {
  try {
    return optionsOf(process.argv.slice(2))
  } catch (error) {
    if (!(error instanceof Usage)) throw error
    console.error(`${error.message}\n\n${HELP}`)
    process.exit(2)
  }
}
const options = readOptions()

/** The subjects that are measured at one commit. */
const subjectsAt = (checkout: Subject["checkout"]): ReadonlyArray<Subject> => {
  const standalone = options.drivers.map((database): Subject => ({
    database,
    nodes: 0,
    balancer: undefined,
    stored: 0,
    checkout
  }))
  const nodes = options.nodes.flatMap((nodes): ReadonlyArray<Subject> => {
    const subject: Subject = { database: "postgres", nodes, balancer: undefined, stored: 0, checkout }
    if (nodes === 1) return [subject]
    return [
      subject,
      ...options.balancer
        ? [{ ...subject, balancer: "header" as const }, { ...subject, balancer: "hello" as const }]
        : [],
      ...options.apart ? [{ ...subject, apart: true }] : []
    ]
  })
  const empty = [...standalone, ...nodes]
  const all = options.stored === 0
    ? empty
    : [
      ...empty,
      ...empty.filter(({ apart }) => apart !== true).map((subject) => ({ ...subject, stored: options.stored }))
    ]
  // Another commit may not support traces.
  return options.traced === undefined || checkout !== here
    ? all
    : [...all, ...all.filter(({ apart }) => apart !== true).map((subject) => ({ ...subject, traced: options.traced }))]
}

const setting = `${
  options.scene === "ring" ?
    `${options.agents} agents in a ring${options.nodes.length === 0 ? "" : " for each node"}`
    : options.scene === "hot" ?
    "one agent to one other"
    : `a group of ${options.agents}`
}, echo ${options.echo}`

const plotFile = options.plot ??
  join(here.root, "verification/runs", `bench-${new Date().toISOString().slice(0, 19).replaceAll(":", "-")}.svg`)

const benchMessages = async (): Promise<boolean> => {
  const common: ContenderOptions = {
    scene: options.scene,
    agents: options.agents,
    echo: options.echo,
    repeat: options.repeat,
    onProfile: options.profile ? printProfile : undefined,
    say
  }
  const checkouts = options.against === undefined ? [here] : [here, await checkOut(options.against)]
  const subjects = checkouts.flatMap(subjectsAt)
  const windows = windowsOf(options)
  const contenders: Array<Contender> = []
  for (const subject of subjects) {
    if (subject.apart === true) {
      contenders.push(await startApart(subject, common))
      continue
    }
    const { contender, scene } = await startContender(subject, common)
    if (contenders.length === 0 && windows.some(({ floor }) => floor)) contenders.push(await startFloor(scene, common))
    contenders.push(contender)
  }
  if (options.ejabberd) contenders.push(await startEjabberd(common))
  for (let round = 0; round < options.repeat; round++) {
    // Every second round has the reverse order, so that a drift of the machine favours no contender.
    const order = round % 2 === 0 ? contenders : contenders.toReversed()
    for (const window of windows) {
      if (window.once && round > 0) continue
      for (const contender of order) {
        if (!contender.takes(window)) continue
        say(`round ${round + 1} of ${options.repeat}: ${contender.name}, ${window.label}`)
        const { cpu, perSecond } = await contender.measure(window, round)
        say(
          `  ${Math.round(perSecond)} messages/s; for each ${Math.round(cpu.server)} µs of the server` +
            `${cpu.database === undefined ? "" : `, ${Math.round(cpu.database)} of the database`}`
        )
      }
    }
  }
  const outcomes: Array<Outcome> = []
  for (const contender of contenders) outcomes.push(await contender.finish())
  await cleanUp()
  const idle = new Map<string, IdleResult>()
  for (const subject of options.idle === 0 ? [] : subjects.filter(({ apart }) => apart !== true))
    idle.set(nameOf(subject), await weighIdle(subject, options.idle, say))
  return await report(
    outcomes,
    idle,
    windows.find(({ pace }) => pace.kind === "full")?.label ?? fullLabel(options.inFlight[0] ?? 64)
  )
}

const report = async (
  outcomes: ReadonlyArray<Outcome>,
  idle: ReadonlyMap<string, IdleResult>,
  load: string
): Promise<boolean> => {
  for (const outcome of outcomes) printOutcome(outcome, setting)
  for (const [name, result] of idle) printIdle(name, result)
  const figures = [
    ...figuresOf(outcomes, options.scene, load),
    ...Array.from(
      idle,
      ([name, { rss }]) => ({
        what: `${name}: an idle socket, resident`,
        unit: "kB" as const,
        values: [rss / 1e3],
        goal: { most: 20 }
      })
    )
  ]
  printFigures(figures)
  console.log(
    `\nload average of the machine's last minute: ${
      loadavg()[0]!.toFixed(1)
    } on ${navigator.hardwareConcurrency} processors; ` +
      `"others" and "stolen" are the shares of them that something else took during a window`
  )
  await mkdir(dirname(resolve(plotFile)), { recursive: true })
  await writeFile(plotFile, svg(plotsOf(outcomes)))
  let good = true
  for (const { name, subject, ...rest } of outcomes) {
    good &&= isWhole(rest.verdict)
    const { checkout, ...described } = subject ?? { checkout: here }
    console.log(json({
      bench: subject !== undefined ? "messages" : name === FLOOR ? "floor" : name,
      subject: name,
      commit: checkout.commit,
      ...described,
      ...rest,
      idle: idle.get(name)
    }))
  }
  console.log(json({ bench: "figures", figures }))
  console.log(`plot: ${plotFile}`)
  if (!good) console.error("\nFAILED: what was accepted, stored and delivered is not the same")
  return good
}

if (options.help) {
  console.log(HELP)
} else if (options.ejabberd && missingEjabberd() !== "") {
  console.error(`ejabberd is not measured: ${missingEjabberd()}`)
} else {
  try {
    const whole = options.mcp
      ? benchMcp(options, say).then(() => true)
      : options.http
      ? benchHttp(options, say).then(() => true)
      : benchMessages()
    process.exitCode = await whole ? 0 : 1
  } catch (error) {
    console.error(error)
    process.exitCode = 1
  } finally {
    await cleanUp()
  }
}
