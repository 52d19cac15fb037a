/** How the service starts the connector. All paths are absolute and are set at installation. */
export interface Launch {
  readonly node: string
  readonly program: string
  readonly handle: string
  readonly path: string
  /** Environment variables that determine where connect.json and the journal are. */
  readonly env: Readonly<Record<string, string>>
}

/**
 * The exit code of a connector for which a restart is useless, because its key is refused or connect.json is invalid.
 */
export const GIVEN_UP = 78

const name = (handle: string): string => `parley-connect-${handle}`

const quoted = (text: string): string =>
  `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("%", "%%").replaceAll("$", "$$$$")}"`

/** The file of a service, and the commands that install and remove the service. */
export interface Unit {
  /** The path below HOME. */
  readonly file: string
  readonly text: string
  readonly install: ReadonlyArray<ReadonlyArray<string>>
  readonly remove: ReadonlyArray<ReadonlyArray<string>>
}

/** The systemd user unit. */
export const systemdUnit = ({ env, handle, node, path, program }: Launch): Unit => ({
  file: `.config/systemd/user/${name(handle)}.service`,
  text: `[Unit]
Description=Answers the messages of @${handle} on Parley

[Service]
ExecStart=${quoted(node)} ${quoted(program)} connect --as ${handle}
${
    Object.entries({ PATH: path, ...env }).map(([name, value]) =>
      `Environment=${quoted(`${name}=${value}`).replaceAll("$$", "$")}\n`
    ).join("")
  }Restart=on-failure
RestartSec=5
RestartPreventExitStatus=${GIVEN_UP}
KillMode=mixed
TimeoutStopSec=30

[Install]
WantedBy=default.target
`,
  install: [["systemctl", "--user", "daemon-reload"], ["systemctl", "--user", "enable", "--now", name(handle)]],
  remove: [["systemctl", "--user", "disable", "--now", name(handle)]]
})

const escaped = (text: string): string => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;")

/**
 * The launchd user agent. launchd supports no exit code that prevents a restart, so it restarts a connector with a
 * refused key every minute.
 */
export const launchdAgent = ({ env, handle, node, path, program }: Launch): Unit => {
  const label = `parley.connect.${handle}`
  const file = `Library/LaunchAgents/${label}.plist`
  const strings = (values: ReadonlyArray<string>): string =>
    values.map((value) => `    <string>${escaped(value)}</string>\n`).join("")
  const variables = Object.entries({ PATH: path, ...env })
  return {
    file,
    text: `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key>
  <string>${label}</string>
  <key>ProgramArguments</key>
  <array>
${strings([node, program, "connect", "--as", handle])}  </array>
  <key>EnvironmentVariables</key>
  <dict>
${
      variables.map(([name, value]) => `    <key>${escaped(name)}</key>\n    <string>${escaped(value)}</string>\n`)
        .join("")
    }  </dict>
  <key>RunAtLoad</key>
  <true/>
  <key>KeepAlive</key>
  <dict>
    <key>SuccessfulExit</key>
    <false/>
  </dict>
  <key>ThrottleInterval</key>
  <integer>60</integer>
</dict>
</plist>
`,
    install: [["launchctl", "load", "-w", file]],
    remove: [["launchctl", "unload", "-w", file]]
  }
}
