import { Crowd } from "./Crowd.ts"
import { again, type Fault, metricOf } from "./Fault.ts"

/** The number of connections to each port of each node. */
const CONNECTIONS = 2_000
/** With this limit of open files, a node accepts some 700 connections of clients and 64 of nodes. */
const OPEN_FILES = 1_024
const EVERY_MS = 50
/** Connections to a port that are opened each time. */
const AT_ONCE = 20

export const silentConnections: Fault = {
  name: "silent-connections",
  about: "2,000 connections without a byte to each port of each node, opened again whenever they are closed",
  // The nodes close connections that are silent for 10 s.
  atLeast: 15,
  openFiles: OPEN_FILES,
  rate: 200,
  failsNoSend: true,
  keepsSpeed: true,
  inject: () => {},
  during: async (scene) => {
    const { problem, say, site } = scene
    const ports = site.nodes.flatMap((node) =>
      ([["http", node.address], ["nodes", node.runner]] as const).map(([port, to]) => ({
        node,
        port,
        crowd: new Crowd({ to, from: site.strangers, size: CONNECTIONS })
      }))
    )
    await again(scene, EVERY_MS, () => {
      for (const { crowd } of ports) crowd.topUp(AT_ONCE)
    })
    for (const { crowd, node, port } of ports) {
      const turnedAway = await metricOf(node, "connections_turned_away_total", `port="${port}"`)
      say(
        `${node.name}, port for ${port}: ${crowd.most} silent connections at once, ${crowd.opened} in all, ${turnedAway} turned away`
      )
      if (turnedAway === 0) problem(`${node.name} turned no connection to its port for ${port} away`)
      crowd.close()
    }
  },
  heal: () => {}
}
