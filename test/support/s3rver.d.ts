declare module "s3rver" {
  import type { Server } from "node:http"
  export default class S3rver {
    constructor(options: {
      readonly port: number
      readonly address: string
      readonly silent: boolean
      readonly directory: string
      readonly configureBuckets: ReadonlyArray<{ readonly name: string; readonly configs?: ReadonlyArray<string> }>
    })
    run(): Promise<{ readonly address: string; readonly port: number }>
    close(): Promise<void>
    httpServer: Server
    /** The middleware of Koa, the outermost first. `run()` reads it. */
    middleware: Array<
      (
        context: {
          readonly method: string
          readonly path: string
          readonly headers: Readonly<Record<string, string | undefined>>
          readonly response: { body: unknown; length: number }
        },
        next: () => Promise<unknown>
      ) => Promise<unknown>
    >
  }
}
