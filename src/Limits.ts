import { CARDS } from "#domain/accounts/AccountsHttp"
import { ANONYMOUS_REQUESTS, ASSETS, REQUESTS } from "#domain/auth/Budgets"
import { AVATAR_WRITES } from "#domain/avatars/Avatars"
import { CONTACT_CHECKS, CONTACT_LISTS } from "#domain/contacts/ContactsHttp"
import { SENDS } from "#domain/conversations/Conversations"
import { CONVERSATION_LISTS } from "#domain/conversations/ConversationsHttp"
import { sendBudgets } from "#domain/conversations/SendBudgets"
import { directoryRates } from "#domain/directory/DirectoryBudget"
import { MUTE_WRITES } from "#domain/mutes/MutesHttp"
import { REACTION_WRITES } from "#domain/reactions/ReactionsHttp"
import { addressRates } from "#domain/registration/AddressLimits"
import { REPLY_CALLS } from "#domain/replies/RepliesHttp"
import { SEARCHES } from "#domain/search/SearchHttp"
import type { LimitName, Rate } from "#infrastructure/rates/RateRule"
import { oauthRates } from "#interfaces/signin/OAuthLimits"

/**
 * The rates of all modules whose limit operators can change while servers run. The rate of a group (`GroupActors.ts`)
 * and that of frames (`ClientFrames.ts`) are read from the settings once, and the tries to redeem a link are fixed.
 */
export const rates: ReadonlyArray<Rate> = [
  REQUESTS,
  ANONYMOUS_REQUESTS,
  ASSETS,
  SENDS,
  ...sendBudgets,
  CARDS,
  CONVERSATION_LISTS,
  CONTACT_LISTS,
  CONTACT_CHECKS,
  ...directoryRates,
  SEARCHES,
  MUTE_WRITES,
  REACTION_WRITES,
  REPLY_CALLS,
  AVATAR_WRITES,
  ...Object.values(addressRates),
  ...Object.values(oauthRates)
]

/**
 * The limits that operators can change while servers run, because the server reads them at each use: the rates, and the
 * caps that are read with `Limits.of`.
 */
export const changeableLimits: ReadonlySet<LimitName> = new Set<LimitName>([
  ...rates.map(({ setting }) => setting),
  "LIMITS_COLD_CONVERSATIONS",
  "LIMITS_HOPS",
  "LIMITS_PUSH_CONFIGS_PER_AGENT",
  "LIMITS_WEBHOOKS_PER_AGENT"
])
