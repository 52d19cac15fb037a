import { signal } from "@preact/signals"
import { Api, Refused, textOf } from "../client/Api.js"

/**
 * @import { Signal } from "@preact/signals"
 * @import { Scope, SignInRequest, State } from "./SignInRequest.ts"
 */

/** The request that the page's address names, and what has become of it. */
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
      this.state.value = error instanceof Refused && error.status === 404 ? { kind: "over" } : { kind: "unreachable", why: textOf(error) }
    }
  }

  /** @param {SignInRequest} request */
  show(request) {
    this.state.value = request.agent === null ? { kind: "choosing", request } : { kind: "deciding", request, agent: request.agent }
  }

  /**
   * Lets the person choose an agent, also if one is signed in.
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
   * Signs in as an agent.
   * @param {string} action
   * @param {object} body
   */
  async signIn(action, body) {
    this.show(await this.post(action, body))
  }

  /**
   * Answers the request, and leaves the page.
   * @param {SignInRequest} request
   * @param {ReadonlyArray<Scope> | null} scopes null to deny
   */
  async answer(request, scopes) {
    const { redirect_to: to } = scopes === null ? await this.post("deny", {}) : await this.post("allow", { scopes })
    this.state.value = { kind: "answered", request, agent: scopes === null ? null : request.agent, to }
    location.href = to
  }
}
