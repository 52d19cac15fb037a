import { avatarKeyOf, avatarUrlOf } from "#domain/agents/AvatarUrl"
import type { Settings } from "#infrastructure/platform/Config"

/** The columns of `groups` that hold a group's picture: a key for a picture on this server, a URL for any other. */
interface Columns {
  readonly avatar_url: string | null
  readonly avatar_key: string | null
}

/**
 * Converts a group's picture between its shown and its stored form. A picture on this server is stored by its key, even
 * if its URL was given. The key keeps the file from being deleted while the group uses it, and lets the shown URL
 * follow PUBLIC_URL.
 */
export const groupPictures = (config: Settings) => ({
  shown: ({ avatar_key, avatar_url }: Columns): string | null =>
    avatar_key === null ? avatar_url : avatarUrlOf(config, avatar_key),
  stored: (url: string | null): Columns => {
    const avatar_key = url === null ? null : avatarKeyOf(config, url)
    return { avatar_key, avatar_url: avatar_key === null ? url : null }
  }
})
