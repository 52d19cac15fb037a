import { Context, Effect, Layer } from "effect"
import { Unavailable } from "#ground/wire/WireError"

/** The body to post for an outbox row about a task; undefined if nothing is left to post. */
export type RenderTask = (subject: string) => Effect.Effect<string | undefined, Unavailable>

/** Renders the posts about tasks. The room `a2a` sets the function with `renderWith`, because it imports this room. */
export class TaskPosts extends Context.Service<TaskPosts, {
  readonly render: RenderTask
  readonly renderWith: (render: RenderTask) => void
}>()("parley/webhooks/TaskPosts") {
  static readonly layer = Layer.sync(TaskPosts, () => {
    // A post that comes before the function is set fails and is retried.
    let render: RenderTask = () => Effect.fail(new Unavailable())
    return TaskPosts.of({
      render: (subject) => render(subject),
      renderWith: (given) => {
        render = given
      }
    })
  })
}
