/** @import { Session } from "../client/Session.js" */

/**
 * Shows a view of the agent in front, and then moves the focus to the view's first field. A narrow pane shows either
 * its list or its conversation.
 * @param {Session} session
 * @param {Session["view"]["value"]} view
 */
export const showView = (session, view) => {
  session.view.value = view
  const focused = (/** @type {string} */ selector) => {
    const element = document.querySelector(`.pane-box.front ${selector}`)
    if (element instanceof HTMLElement) element.focus()
  }
  requestAnimationFrame(() => {
    const list = document.querySelector(".pane-box.front .list")
    if (list instanceof HTMLElement && list.offsetParent === null) session.conversations.place.value = null
    // After the conversation is closed, the list takes the focus.
    setTimeout(() => focused(view === "me" ? ".tabs [aria-pressed='true']" : ".list-body input"), 50)
  })
}

/**
 * Shows the search, limited to a conversation or to none.
 * @param {Session} session
 * @param {string} conversation empty for all conversations
 */
export const searchIn = (session, conversation) => {
  session.search.limit({ conversation })
  showView(session, "conversations")
}
