import manifest from "../../package.json" with { type: "json" }

/** The server's own version; the contract's is in the OpenAPI document. */
export const VERSION: string = manifest.version
