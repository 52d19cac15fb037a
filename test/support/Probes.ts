import { Probe } from "#infrastructure/http/EndpointOptions"
import { ServiceApi } from "#interfaces/service/ServiceApi"
import { Context } from "effect"

/** The paths of the probes. */
export const PROBES = Object.values(ServiceApi.endpoints)
  .filter(({ annotations }) => Context.get(annotations, Probe))
  .map(({ path }) => path)
