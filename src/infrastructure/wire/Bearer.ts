/**
 * Returns the credential of an `Authorization: Bearer …` header (wire.md C.0, Auth). Returns the empty string if the
 * header is missing, has another form, or contains more than one word after `Bearer`.
 */
export const bearerOf = (authorization: string | undefined): string =>
  /^bearer +(\S+) *$/i.exec(authorization ?? "")?.[1] ?? ""
