/** The result of an operation on a file, or undefined if there is no such file. */
export const unlessMissing = <A>(operation: Promise<A>): Promise<A | undefined> =>
  operation.catch((error: unknown) => {
    if (Reflect.get(Object(error), "code") === "ENOENT") return undefined
    throw error
  })
