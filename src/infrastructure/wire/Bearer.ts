/**
 * The credential of an `Authorization: Bearer …` header (wire.md C.0, Auth); empty if there is none, or if it is not
 * one word.
 */
export const bearerOf = (authorization: string | undefined): string =>
  /^bearer +(\S+) *$/i.exec(authorization ?? "")?.[1] ?? ""
