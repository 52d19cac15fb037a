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

/** Called when the operator's session no longer counts. @type {{ current: (why: string) => void }} */
export const onOutside = { current: () => undefined }

const BEFORE_PROXY = "A proxy in front of the server does not let you through. Reload this page to sign in there."

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
      redirect: "manual",
      ...body === undefined ? {} : { headers: { "content-type": "application/json" }, body: JSON.stringify(body) },
      signal: AbortSignal.timeout(20_000)
    })
  } catch {
    throw new Refused(0, "The server does not answer.")
  }
  // Every answer of the server is JSON. Anything else is of a proxy in front of it, which wants the person to sign in.
  const isOwn = (response.headers.get("content-type") ?? "").includes("json")
  if (!isOwn && response.status < 500) {
    onOutside.current(BEFORE_PROXY)
    throw new Refused(403, BEFORE_PROXY)
  }
  const answer = await response.json().catch(() => ({}))
  if (response.ok) return answer
  // A 404 means that there is no session, or that the requested resource does not exist. This call finds out which of
  // the two is the case.
  if (response.status === 404 && !["session", "session/proxy"].includes(path)) {
    call("GET", "session").catch((error) => {
      if (error instanceof Refused && error.status === 404) onOutside.current("The session is over.")
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
