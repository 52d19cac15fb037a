import { avatarKeyOf, avatarUrlOf } from "#domain/agents/AvatarUrl"
import type { Settings } from "#infrastructure/platform/Config"

/** The columns of `groups` with a group's picture: a key for a picture on this server, a URL for any other picture. */
interface Columns {
  readonly avatar_url: string | null
  readonly avatar_key: string | null
}

/**
 * Converts a group's picture between its shown and its stored form. For a picture on this server, the key is stored,
 * even if the URL was given. Because of the key, the file is not deleted while the group uses it, and the shown URL
 * always begins with the current PUBLIC_URL.
 */
export const groupPictures = (config: Settings) => ({
  shown: ({ avatar_key, avatar_url }: Columns): string | null =>
    avatar_key === null ? avatar_url : avatarUrlOf(config, avatar_key),
  stored: (url: string | null): Columns => {
    const avatar_key = url === null ? null : avatarKeyOf(config, url)
    return { avatar_key, avatar_url: avatar_key === null ? url : null }
  }
})
