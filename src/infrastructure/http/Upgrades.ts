import type { Settings } from "#infrastructure/platform/Config"
import type { Ids } from "#infrastructure/platform/Ids"
import { requestIdFrom } from "#infrastructure/platform/RequestId"
import { Forbidden, NotFound } from "#infrastructure/wire/WireError"
import { refuse } from "#infrastructure/wire/WireErrors"
import type { IncomingMessage } from "node:http"
import type { Duplex } from "node:stream"
import { apiOrigins, isOwnOrigin } from "./Origins.ts"
import { pathOf } from "./RequestPath.ts"
import type { RouteTable } from "./RouteTable.ts"
import { NO_PATH } from "./Routing.ts"
import type { UpgradeHandler } from "./UpgradeHandler.ts"

/** The dependencies of the handler of upgrades. */
interface Dependencies {
  readonly config: Settings
  readonly ids: Ids["Service"]
  readonly table: RouteTable
  readonly upgrades: UpgradeHandler["Service"]
}

/** Passes upgrades of the WebSocket's path to the UpgradeHandler, and refuses all other upgrades. */
export const makeUpgrades = ({ config, ids, table, upgrades }: Dependencies) => {
  const allowOrigin = apiOrigins(config)
  const mayConnect = ({ headers: { host, origin } }: IncomingMessage): boolean =>
    origin === undefined || allowOrigin(origin) !== "" || isOwnOrigin(config, origin, host)

  return (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
    const id = requestIdFrom(request.headers["x-request-id"], ids)
    if (pathOf(request.url ?? "/").toLowerCase() !== upgrades.path) {
      const message = table.isHidden(request)
        ? NO_PATH
        : `This path has no WebSocket. The WebSocket is at ${upgrades.path}.`
      refuse(socket, new NotFound({ message }), id)
    } else if (mayConnect(request)) upgrades.upgrade(request, socket, head, id)
    else refuse(socket, new Forbidden({ message: "This origin may not connect from a browser." }), id)
  }
}
