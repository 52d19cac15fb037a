import { inexactNumber, numberRefused } from "#infrastructure/wire/InexactNumber"
import { NodeHttpIncomingMessage } from "@effect/platform-node/NodeHttpIncomingMessage"
import { Effect, Option, Stream } from "effect"
import { Cookies, Headers, type HttpMethod, HttpServerError, HttpServerRequest } from "effect/http"
import { ServerRequest } from "./ServerRequest.ts"

/** The changes to a request since it came over the network. */
type Changes = Parameters<HttpServerRequest.HttpServerRequest["modify"]>[0] & {
  readonly method?: HttpMethod.HttpMethod
  readonly body?: string
}

/**
 * Checks a body that a client sent. Dies with a refusal if the JSON contains a number that the server would change
 * (wire.md C.0, Numbers).
 */
export const checkedText = (body: string): Effect.Effect<string> => {
  const found = inexactNumber(body)
  return found === undefined ? Effect.succeed(body) : Effect.die(numberRefused(found))
}

/**
 * The body of a request, without the check of numbers. It is for forms, and for protocols that check numbers themselves
 * because their refusals have another form.
 */
export const uncheckedText = (request: HttpServerRequest.HttpServerRequest): Effect.Effect<string> =>
  request.source instanceof ServerRequest ? Effect.succeed(request.source.body ?? "") : Effect.orDie(request.text)

/** A request whose body has already been read, in the form that its endpoint receives. */
export class BufferedRequest extends NodeHttpIncomingMessage<HttpServerError.HttpServerError>
  implements HttpServerRequest.HttpServerRequest
{
  readonly [HttpServerRequest.TypeId]: typeof HttpServerRequest.TypeId = HttpServerRequest.TypeId
  declare readonly source: ServerRequest
  readonly method: string
  readonly url: string
  private readonly changes: Changes
  private known: Headers.Headers | undefined

  constructor(source: ServerRequest, changes: Changes = {}) {
    super(
      source,
      (cause) =>
        new HttpServerError.HttpServerError({ reason: new HttpServerError.RequestParseError({ request: this, cause }) })
    )
    this.method = changes.method ?? source.method ?? ""
    this.url = changes.url ?? source.url ?? ""
    this.changes = changes
    this.known = changes.headers
  }

  override get headers(): Headers.Headers {
    return this.known ??= Headers.fromInput(this.source.headers)
  }

  private get body(): string {
    return this.changes.body ?? this.source.body ?? ""
  }

  override get text(): Effect.Effect<string> {
    // If the changes contain a body, the server made it for a call of its own API. Its numbers were already checked.
    return this.changes.body === undefined ? checkedText(this.body) : Effect.succeed(this.body)
  }

  override get arrayBuffer(): Effect.Effect<ArrayBuffer> {
    return Effect.sync(() => Uint8Array.from(Buffer.from(this.body)).buffer)
  }

  override get stream(): Stream.Stream<Uint8Array> {
    return Stream.suspend(() => Stream.make<[Uint8Array]>(Buffer.from(this.body)))
  }

  override get remoteAddress(): Option.Option<string> {
    return this.changes.remoteAddress ?? Option.fromNullishOr(this.source.socket.remoteAddress)
  }

  get peerAddress(): Option.Option<string> {
    return this.changes.peerAddress ?? this.remoteAddress
  }

  get protocol(): "http" | "https" | undefined {
    return this.changes.protocol
  }

  get originalUrl(): string {
    const { host } = this.source.headers
    return host === undefined ? this.url : `http://${host}${this.source.url ?? ""}`
  }

  get cookies(): Readonly<Record<string, string>> {
    return Cookies.parseHeader(this.headers["cookie"] ?? "")
  }

  get multipart(): Effect.Effect<never> {
    return Effect.die(new Error("No endpoint takes forms."))
  }

  get multipartStream(): Stream.Stream<never> {
    return Stream.die(new Error("No endpoint takes forms."))
  }

  get upgrade(): Effect.Effect<never, HttpServerError.HttpServerError> {
    return this.upgradeWith()
  }

  upgradeWith(): Effect.Effect<never, HttpServerError.HttpServerError> {
    return Effect.fail(
      new HttpServerError.HttpServerError({
        reason: new HttpServerError.RequestParseError({ request: this, description: "not an upgrade" })
      })
    )
  }

  modify(changes: Changes): BufferedRequest {
    return new BufferedRequest(this.source, { ...this.changes, ...changes })
  }

  override toString(): string {
    return `BufferedRequest(${this.method} ${this.url.replace(/\?.*$/s, "")})`
  }

  override toJSON(): unknown {
    return { _id: "HttpServerRequest", method: this.method, url: this.url.replace(/\?.*$/s, "") }
  }
}
