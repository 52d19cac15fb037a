import manifest from "../../../package.json" with { type: "json" }

/** The version of the server. The contract has its own version, in the OpenAPI document. */
export const VERSION: string = manifest.version
