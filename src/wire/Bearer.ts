/** The credential of an `Authorization: Bearer …` header, empty if there is none (wire.md C.0, Auth). */
export const bearerOf = (authorization: string | undefined): string => {
  if (authorization === undefined || authorization.slice(0, 7).toLowerCase() !== "bearer ") return ""
  let start = 7
  while (authorization.charCodeAt(start) === 32) start++
  return authorization.slice(start)
}
