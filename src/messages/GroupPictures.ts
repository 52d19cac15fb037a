import { avatarKeyOf, avatarUrlOf } from "../agents/AvatarUrl.ts"
import type { Settings } from "../platform/Config.ts"

/** The columns of groups that say where its picture is: one of this server's by its key, any other by its URL. */
interface Columns {
  readonly avatar_url: string | null
  readonly avatar_key: string | null
}

/**
 * A group's picture as it is shown and as it is stored. One of this server's is stored
 * by its key, however its URL came in: so it is kept while the group has it, and its
 * URL follows PUBLIC_URL.
 */
export const groupPictures = (config: Settings) => ({
  shown: ({ avatar_key, avatar_url }: Columns): string | null =>
    avatar_key === null ? avatar_url : avatarUrlOf(config, avatar_key),
  stored: (url: string | null): Columns => {
    const avatar_key = url === null ? null : avatarKeyOf(config, url)
    return { avatar_key, avatar_url: avatar_key === null ? url : null }
  }
})
