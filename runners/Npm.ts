/**
 * Stops a server when the npm that started it has ended. `npm start` and `npx` run a shell, and npm passes signals on to that shell only. The
 * scripts of package.json replace the shell by the server (`exec`); with `npx`, the shell dies of the signal and the server stays.
 */

/** A script that is one command in the foreground, so that its shell, or npm, is the parent of the server. */
const ONE_COMMAND = /^[^;&|]*\bparley(\.js)?\b[^;&|]*$/

const LOOK_MS = 500

/**
 * Whether this npm catches SIGTERM and passes it on to nobody, as npm 9.6 to 10.2 do. Then neither the shell nor the server can
 * notice the signal.
 */
const keepsSignals = (major: number, minor: number): boolean => (major === 9 && minor >= 6) || (major === 10 && minor < 3)

/**
 * To be called once this process handles SIGTERM. Under npm, this process stops when npm, or the shell that npm started, has
 * ended before it. An npm that keeps signals gets a line that says how to stop. Does nothing without npm, and none for a server
 * that a script starts in the background.
 */
export const endWithNpm = (): void => {
  const { npm_config_user_agent: agent = "", npm_lifecycle_script: script = "" } = process.env
  if (!ONE_COMMAND.test(script)) return
  const [, version, major, minor] = /^npm\/((\d+)\.(\d+)\S*)/.exec(agent) ?? []
  if (keepsSignals(Number(major), Number(minor))) {
    console.log(`npm ${version} passes no SIGTERM on. Stop with Ctrl-C, or with: kill ${process.pid}`)
  }
  const parent = process.ppid
  const timer = setInterval(() => {
    if (process.ppid === parent) return
    clearInterval(timer)
    process.kill(process.pid, "SIGTERM")
  }, LOOK_MS)
  timer.unref()
  // A signal to all of them at once must not count as a second one.
  for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => clearInterval(timer))
}
