import { signal } from "@preact/signals"
import { Api, Refused, textOf } from "../client/Api.js"

/**
 * @import { Signal } from "@preact/signals"
 * @import { Scope, SignInRequest, State } from "./SignInRequest.ts"
 */

/** The sign-in request that the page's URL names, and its state. */
export class Request {
  /** @param {string} id */
  constructor(id) {
    this.path = `oauth/requests/${encodeURIComponent(id)}`
    this.api = new Api(undefined, { cookies: true })
    /** @type {Signal<State>} */
    this.state = signal({ kind: "loading" })
  }

  async load() {
    this.state.value = { kind: "loading" }
    try {
      this.show(await this.api.get(this.path))
    } catch (error) {
      this.state.value = error instanceof Refused && error.status === 404
        ? { kind: "over" }
        : { kind: "unreachable", why: textOf(error) }
    }
  }

  /** @param {SignInRequest} request */
  show(request) {
    this.state.value = request.agent === null
      ? { kind: "choosing", request }
      : { kind: "deciding", request, agent: request.agent }
  }

  /**
   * Lets the person choose an agent, even if one is signed in.
   * @param {SignInRequest} request
   */
  choose(request) {
    this.state.value = { kind: "choosing", request }
  }

  /**
   * @param {string} action
   * @param {object} body
   */
  async post(action, body) {
    try {
      return await this.api.post(`${this.path}/${action}`, body)
    } catch (error) {
      if (error instanceof Refused && error.status === 404) this.state.value = { kind: "over" }
      throw error
    }
  }

  /**
   * Signs in as an agent. If the agent is new, its key is shown before the decision.
   * @param {string} action
   * @param {object} body
   */
  async signIn(action, body) {
    const { api_key: key, ...request } = await this.post(action, body)
    if (key === undefined) this.show(request)
    else this.state.value = { kind: "registered", request, agent: request.agent, key }
  }

  /**
   * Allows or denies the request, and leaves the page.
   * @param {SignInRequest} request
   * @param {ReadonlyArray<Scope> | null} scopes null to deny
   */
  async answer(request, scopes) {
    const { redirect_to: to } = await (scopes === null ? this.post("deny", {}) : this.post("allow", { scopes })).catch(
      (error) => {
        throw error instanceof Refused && error.status === 401
          ? new Error("You are no longer signed in as this agent. Choose an agent again.", { cause: error })
          : error
      }
    )
    this.state.value = { kind: "answered", request, agent: scopes === null ? null : request.agent, to }
    location.href = to
  }
}
