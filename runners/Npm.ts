/**
 * Stops a server when the npm that started it has ended. `npm start` and `npx` run a shell, and npm forwards signals
 * only to that shell. The scripts of package.json replace the shell with the server (`exec`). With `npx`, a signal ends
 * the shell and not the server.
 */

/**
 * Matches a script that is a single command in the foreground. The parent of the server is then the script's shell or
 * npm.
 */
const ONE_COMMAND = /^[^;&|]*\bparley(\.js)?\b[^;&|]*$/

const LOOK_MS = 500

/**
 * Whether this npm catches SIGTERM and does not forward it, as npm 9.6 to 10.2 do. Neither the shell nor the server
 * gets the signal then.
 */
const keepsSignals = (major: number, minor: number): boolean =>
  (major === 9 && minor >= 6) || (major === 10 && minor < 3)

/**
 * Under npm, makes this process stop when npm or the shell that npm started has ended. Call it after this process has
 * begun to handle SIGTERM. If npm does not forward signals, prints how to stop the server. Has no effect without npm,
 * or if a script starts the server in the background.
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
