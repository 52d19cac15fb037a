/**
 * The title of the tab: the number of unread messages of all agents, the open conversation, and the agent in front.
 * @param {{ unread: number, handle: string | null, conversation: string | null }} shown
 */
export const tabTitle = ({ conversation, handle, unread }) =>
  `${unread === 0 ? "" : `(${unread > 999 ? "999+" : unread}) `}${
    [conversation, handle === null ? null : `@${handle}`, "Parley"].filter((part) => part !== null && part !== "").join(
      " · "
    )
  }`
