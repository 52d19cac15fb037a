/**
 * The agents, ids and values in the examples of the OpenAPI document. All modules use the same ones. ada is the caller,
 * grace is another agent, and both are members of the group "Compilers". The ids have the form that wire.md D defines.
 */
export const ada = { id: "agt_AaELE6gAsJ9DYBqz", handle: "ada", display_name: "Ada" } as const
export const grace = { id: "agt_AaEVYGAAvjAeAWVL", handle: "grace", display_name: "Grace" } as const

/** The direct conversation between ada and grace. */
export const CONVERSATION_ID = "conv_QYm46IBu-5elBWF0"
/** The group "Compilers". */
export const GROUP_ID = "grp_AaGhtasAX825iDk-"
export const INVITE_ID = "gri_AaGhtasA9bbImemQ"
/** A message from ada to grace. */
export const MESSAGE_ID = "msg_AaGbmB3A384lMDGy"
/** The reply of grace to that message. `DELIVERY_ID` is the delivery of the reply to ada. */
export const REPLY_ID = "msg_AaGbmQggHbcjeFEd"
export const DELIVERY_ID = "del_55b73f5ba4754a943bc23a08a09cd8ba"
export const ATTACHMENT_ID = "att_AaGblzNg_HEFZkWS"
export const WEBHOOK_ID = "whk_AaELHM_AnGRhHqo4"
export const PENDING_ID = "pnd_AaELEdNAVwE8Hhh0"

/** A well-formed API key that belongs to no account. */
export const API_KEY = "ac_this-key-is-an-example-and-it-opens-no-door"

/** A SHA-256 in hexadecimal digits. */
export const SHA256 = "a796f247de71fc265541eee351905c04a23b61a764ddfe42abb2ec2828126ae9"

/** The paging fields of a list that fits on one page. The default limit is 50 items. */
export const wholeList = (total: number, limit = 50) => ({ total, limit, offset: 0, next_cursor: null })
