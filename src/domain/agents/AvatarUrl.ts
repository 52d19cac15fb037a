import type { Settings } from "#infrastructure/platform/Config"
import { publicUrl } from "#infrastructure/platform/PublicUrl"

const KEY = /^[0-9a-f]{64}$/

export const isAvatarKey = (text: string): boolean => KEY.test(text)

const base = (config: Settings): string => `${publicUrl(config)}/v1/avatars/`

/** The public URL of a picture on this server. */
export const avatarUrlOf = (config: Settings, key: string): string => base(config) + key

/** Returns the key of a picture on this server from its URL, or null for any other URL. */
export const avatarKeyOf = (config: Settings, url: string): string | null => {
  const key = url.startsWith(base(config)) ? url.slice(base(config).length) : ""
  return isAvatarKey(key) ? key : null
}
