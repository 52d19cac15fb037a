import type { Context } from "effect"
import { OpenApi } from "effect/http-api"

type Operation = OpenApi.OpenAPISpecOperation
type Content = OpenApi.OpenApiSpecContent

/** The documentation of an operation in the OpenAPI document. */
interface Documentation {
  /** The title of the operation in the list of operations: an imperative of two to five words. */
  readonly summary: string
  /** One or two sentences: what the operation does, who may call it, and what a caller should know. */
  readonly description: string
  /**
   * Example values by parameter name, as they are written in the URL. Every path parameter needs an example, query
   * parameters may have one.
   */
  readonly parameters?: Readonly<Record<string, string>>
  /** An example of the request body. */
  readonly body?: unknown
  /** Whether the request body may be omitted. The default is false. */
  readonly bodyIsOptional?: boolean
  /** An example of the body of 2xx responses. */
  readonly answer?: unknown
}

const withExample = (content: Content, example: unknown): Content =>
  Object.fromEntries(Object.entries(content).map(([type, media]) => [type, { ...media, example }]))

const withParameters = (operation: Operation, examples: Readonly<Record<string, string>>): Operation["parameters"] =>
  operation.parameters.map((parameter) =>
    parameter.name in examples ? { ...parameter, example: examples[parameter.name] } : parameter
  )

const withAnswer = (responses: Operation["responses"], example: unknown): Operation["responses"] =>
  Object.fromEntries(
    Object.entries(responses).map(([status, response]) => [
      status,
      status.startsWith("2") && response.content !== undefined
        ? { ...response, content: withExample(response.content, example) }
        : response
    ])
  )

/**
 * The annotations that document an endpoint: `endpoint.annotateMerge(documented({ … }))`. They are read only when the
 * OpenAPI document is generated.
 */
export const documented = (
  { answer, body, bodyIsOptional = false, description, parameters = {}, summary }: Documentation
): Context.Context<never> =>
  OpenApi.annotations({
    summary,
    description,
    transform: (spec) => {
      const operation = spec as Operation
      return {
        ...operation,
        parameters: withParameters(operation, parameters),
        ...(operation.requestBody === undefined || body === undefined ? {} : {
          requestBody: {
            ...operation.requestBody,
            required: !bodyIsOptional,
            content: withExample(operation.requestBody.content, body)
          }
        }),
        responses: answer === undefined ? operation.responses : withAnswer(operation.responses, answer)
      }
    }
  })
