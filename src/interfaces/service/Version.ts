import manifest from "../../../package.json" with { type: "json" }

/** The version of the server. The version of the contract is in the OpenAPI document. */
export const VERSION: string = manifest.version
