import { Context, Effect, Layer } from "effect"
import { Unavailable } from "../wire/WireError.ts"

/** The body to post for an outbox row about a task; undefined: nothing is left to post. */
export type RenderTask = (subject: string) => Effect.Effect<string | undefined, Unavailable>

/** Renders what is posted about tasks. The room that has the tasks sets how: it imports this one. */
export class TaskPosts extends Context.Service<TaskPosts, {
  readonly render: RenderTask
  readonly renderWith: (render: RenderTask) => void
}>()("parley/webhooks/TaskPosts") {
  static readonly layer = Layer.sync(TaskPosts, () => {
    // A post that comes before it is set is tried again.
    let render: RenderTask = () => Effect.fail(new Unavailable())
    return TaskPosts.of({
      render: (subject) => render(subject),
      renderWith: (given) => {
        render = given
      }
    })
  })
}
