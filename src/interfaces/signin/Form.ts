/** How many bytes a form may have. */
export const MAX_FORM_BYTES = 16_384

/** The parameters of a form; undefined if the form has more than MAX_FORM_BYTES. */
export const readForm = (text: string): URLSearchParams | undefined =>
  text.length > MAX_FORM_BYTES || Buffer.byteLength(text) > MAX_FORM_BYTES ? undefined : new URLSearchParams(text)

/**
 * The first parameter other than `resource` that is given more than once. Takes time proportional to the number of
 * parameters.
 */
export const repeatedIn = (form: URLSearchParams): string | undefined => {
  const seen = new Set<string>()
  for (const name of form.keys()) {
    if (name === "resource") continue
    if (seen.has(name)) return name
    seen.add(name)
  }
  return undefined
}
