import { useEffect, useState } from "preact/hooks"

const base = new URL("./console/api/", document.baseURI)

/** A refusal, with the server's message. */
export class Refused extends Error {
  /** @param {number} status 0 if there was no response @param {string} message */
  constructor(status, message) {
    super(message)
    this.status = status
  }
}

/** @param {unknown} error */
export const textOf = (error) => error instanceof Error ? error.message : String(error)

export const streamUrl = () => new URL("stream", base).href

/** Called when the operator's session no longer exists. @type {{ current: () => void }} */
export const onOutside = { current: () => undefined }

/**
 * Calls the operators' API with the session's cookie.
 * @param {string} method
 * @param {string} path
 * @param {unknown} [body]
 * @returns {Promise<any>}
 */
export const call = async (method, path, body) => {
  let response
  try {
    response = await fetch(new URL(path, base), {
      method,
      credentials: "same-origin",
      cache: "no-store",
      ...body === undefined ? {} : { headers: { "content-type": "application/json" }, body: JSON.stringify(body) },
      signal: AbortSignal.timeout(20_000)
    })
  } catch {
    throw new Refused(0, "The server does not answer.")
  }
  const answer = await response.json().catch(() => ({}))
  if (response.ok) return answer
  // A 404 means that there is no session, or that the requested resource does not exist. This call finds out which of
  // the two is the case.
  if (response.status === 404 && path !== "session") {
    call("GET", "session").catch((error) => {
      if (error instanceof Refused && error.status === 404) onOutside.current()
    })
  }
  throw new Refused(
    response.status,
    typeof answer.message === "string" ? answer.message : `The server answered ${response.status}.`
  )
}

/** @param {string} path @param {Record<string, string | undefined>} query */
export const withQuery = (path, query) => {
  const parameters = new URLSearchParams()
  for (const [name, value] of Object.entries(query))
    if (value !== undefined && value !== "") parameters.set(name, value)
  const text = parameters.toString()
  return text === "" ? path : `${path}?${text}`
}

/**
 * Reads a path of the API when the component is first drawn, and again on `reload`.
 * @param {string | null} path null to read nothing
 * @returns {{ data: any, problem: string | null, busy: boolean, reload: () => Promise<void>, set: (data: any) => void }}
 */
export const useRead = (path) => {
  const [state, setState] = useState(
    /** @type {{ data: any, problem: string | null, busy: boolean }} */ ({
      data: null,
      problem: null,
      busy: path !== null
    })
  )
  const read = async (/** @type {() => boolean} */ current) => {
    if (path === null) return
    setState((before) => ({ ...before, busy: true }))
    try {
      const data = await call("GET", path)
      if (current()) setState({ data, problem: null, busy: false })
    } catch (error) {
      if (current()) setState((before) => ({ ...before, problem: textOf(error), busy: false }))
    }
  }
  useEffect(() => {
    let current = true
    setState({ data: null, problem: null, busy: path !== null })
    void read(() => current)
    return () => {
      current = false
    }
  }, [path])
  return { ...state, reload: () => read(() => true), set: (data) => setState({ data, problem: null, busy: false }) }
}

/**
 * Reads a list page by page.
 * @param {string} path
 * @param {string} name
 * @param {Record<string, string | undefined>} query
 */
export const useList = (path, name, query) => {
  const first = withQuery(path, query)
  const { busy, data, problem, reload } = useRead(first)
  const [more, setMore] = useState(
    /** @type {{ of: any, rows: Array<any>, cursor: string | null }} */ ({ of: null, rows: [], cursor: null })
  )
  const added = more.of === data && data !== null ? more : { rows: [], cursor: data?.next_cursor ?? null }
  return {
    busy,
    problem,
    reload,
    rows: data === null ? null : [...data[name], ...added.rows],
    next: added.cursor === null ? null : async () => {
      const page = await call("GET", withQuery(path, { ...query, cursor: added.cursor ?? undefined }))
      setMore({ of: data, rows: [...added.rows, ...page[name]], cursor: page.next_cursor })
    }
  }
}
