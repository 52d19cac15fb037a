/**
 * Stops a server when the npm that started it has ended. `npm start` and `npx` run a shell, and npm passes signals on
 * to that shell only. The scripts of package.json replace the shell by the server (`exec`). With `npx`, a signal ends
 * the shell and not the server.
 */

/** A script that is one command in the foreground, so that its shell, or npm, is the parent of the server. */
const ONE_COMMAND = /^[^;&|]*\bparley(\.js)?\b[^;&|]*$/

const LOOK_MS = 500

/**
 * Whether this npm catches SIGTERM and does not pass it on, as npm 9.6 to 10.2 do. Then neither the shell nor the
 * server can notice the signal.
 */
const keepsSignals = (major: number, minor: number): boolean =>
  (major === 9 && minor >= 6) || (major === 10 && minor < 3)

/**
 * Must be called once this process handles SIGTERM. Under npm, this process then stops when npm, or the shell that npm
 * started, has ended. If npm does not pass signals on, a line is printed that says how to stop. Nothing happens without
 * npm, or for a server that a script starts in the background.
 */
export const endWithNpm = (): void => {
  const { npm_config_user_agent: agent = "", npm_lifecycle_script: script = "" } = process.env
  if (!ONE_COMMAND.test(script)) return
  const [, version, major, minor] = /^npm\/((\d+)\.(\d+)\S*)/.exec(agent) ?? []
  if (keepsSignals(Number(major), Number(minor))) {
    console.log(`npm ${version} does not pass SIGTERM on. Stop with Ctrl-C, or with: kill ${process.pid}`)
  }
  const parent = process.ppid
  const timer = setInterval(() => {
    if (process.ppid === parent) return
    clearInterval(timer)
    process.kill(process.pid, "SIGTERM")
  }, LOOK_MS)
  timer.unref()
  // If a signal reaches npm, the shell and the server at once, the end of the shell must not send the server a second
  // signal.
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => clearInterval(timer))
}
