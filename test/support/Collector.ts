import { createServer, type IncomingHttpHeaders, type Server } from "node:http"
import type { AddressInfo } from "node:net"

/** A span as a collector gets it (OTLP, JSON). */
export interface CollectedSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly name: string
  readonly kind: number
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly attributes: ReadonlyArray<{ readonly key: string; readonly value: Readonly<Record<string, unknown>> }>
  readonly links: ReadonlyArray<{ readonly traceId: string; readonly spanId: string }>
  readonly status: { readonly code: number; readonly message?: string }
  /** The node that sent it. */
  readonly node: string
}

interface Body {
  readonly resourceSpans: ReadonlyArray<{
    readonly resource: { readonly attributes: CollectedSpan["attributes"] }
    readonly scopeSpans: ReadonlyArray<{ readonly spans: ReadonlyArray<Omit<CollectedSpan, "node">> }>
  }>
}

/** An OpenTelemetry collector that keeps the spans that it receives at `/v1/traces`. */
export class Collector {
  readonly spans: Array<CollectedSpan> = []
  readonly texts: Array<string> = []
  readonly headers: Array<IncomingHttpHeaders> = []
  private readonly server: Server

  private constructor() {
    this.server = createServer((request, response) => {
      let text = ""
      request.setEncoding("utf8").on("data", (part: string) => text += part).on("end", () => {
        if (request.method !== "POST" || request.url !== "/v1/traces") return response.writeHead(404).end()
        this.texts.push(text)
        this.headers.push(request.headers)
        for (const { resource, scopeSpans } of (JSON.parse(text) as Body).resourceSpans) {
          const node = String(
            resource.attributes.find(({ key }) => key === "service.instance.id")?.value["stringValue"]
          )
          this.spans.push(...scopeSpans.flatMap(({ spans }) => spans).map((span) => ({ ...span, node })))
        }
        response.writeHead(200, { "content-type": "application/json" }).end("{}")
      })
    })
  }

  static async start(): Promise<Collector> {
    const collector = new Collector()
    await new Promise<void>((resolve) => collector.server.listen(0, "127.0.0.1", resolve))
    return collector
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`
  }

  of(traceId: string): ReadonlyArray<CollectedSpan> {
    return this.spans.filter((span) => span.traceId === traceId)
  }

  stop(): void {
    this.server.closeAllConnections()
    this.server.close()
  }
}
