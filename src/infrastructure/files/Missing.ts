/** Returns the result of a file operation, or undefined if the file does not exist. */
export const unlessMissing = <A>(operation: Promise<A>): Promise<A | undefined> =>
  operation.catch((error: unknown) => {
    if (Reflect.get(Object(error), "code") === "ENOENT") return undefined
    throw error
  })
