import { Accounts } from "#domain/agents/Accounts"
import { Agents } from "#domain/agents/Agents"
import { makeAvatarImage } from "#domain/avatars/AvatarImage"
import { Avatars } from "#domain/avatars/Avatars"
import { AvatarsRepo } from "#domain/avatars/AvatarsRepo"
import { Conversations } from "#domain/conversations/Conversations"
import { GroupEntity } from "#domain/groups/GroupEntity"
import { Groups } from "#domain/groups/Groups"
import { Config } from "#infrastructure/platform/Config"
import { assert, describe, it, layer } from "@effect/vitest"
import { Clock, Effect, Layer } from "effect"
import { TestClock } from "effect/testing"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { crc32, deflateSync } from "node:zlib"
import sharp from "sharp"
import { entityClient } from "../support/AsACaller.ts"
import { eachDatabase, type TestDatabase } from "../support/Databases.ts"
import { breath } from "../support/Eventually.ts"
import { leap } from "../support/Leap.ts"
import { layerModules, newAgent } from "../support/Modules.ts"

const plain = (width: number, height: number, background = "#3060c0") =>
  sharp({ create: { width, height, channels: 3, background } })

const render = (bytes: Buffer) =>
  Effect.flatMap(makeAvatarImage, (make) => make(bytes)).pipe(Effect.provide(Config.layerTest()))
const refusal = (bytes: Buffer) => Effect.map(Effect.flip(render(bytes)), ({ _tag }) => _tag)

const chunk = (type: string, data: Buffer): Buffer => {
  const body = Buffer.concat([Buffer.from(type, "latin1"), data])
  const frame = Buffer.alloc(8)
  frame.writeUInt32BE(data.length)
  frame.writeUInt32BE(crc32(body), 4)
  return Buffer.concat([frame.subarray(0, 4), body, frame.subarray(4)])
}

/** A valid PNG of one colour: some kilobytes that become width × height pixels. */
const bomb = (width: number, height: number): Buffer => {
  const header = Buffer.alloc(13)
  header.writeUInt32BE(width)
  header.writeUInt32BE(height, 4)
  header.set([1, 0, 0, 0, 0], 8)
  const rows = Buffer.alloc((1 + Math.ceil(width / 8)) * height)
  return Buffer.concat([
    Buffer.from("\x89PNG\r\n\x1a\n", "latin1"),
    chunk("IHDR", header),
    chunk("IDAT", deflateSync(rows)),
    chunk("IEND", Buffer.alloc(0))
  ])
}

describe("an avatar's picture", () => {
  for (const format of ["jpeg", "png", "webp", "gif"] as const) {
    it.live(`may be a ${format}, and becomes a square of 512 pixels`, () =>
      Effect.gen(function*() {
        const image = yield* render(yield* Effect.promise(() => plain(300, 200).toFormat(format).toBuffer()))
        const { format: made, height, width } = yield* Effect.promise(() => sharp(image).metadata())
        assert.deepStrictEqual([made, width, height], ["webp", 512, 512])
      }))
  }

  it.live("is upright, its middle, and without metadata", () =>
    Effect.gen(function*() {
      // As a camera held upright stores it: to be turned by a quarter, red below, blue in the middle, green above.
      const part = (colour: string) => plain(200, 400, colour).png().toBuffer()
      const picture = yield* Effect.promise(async () =>
        plain(600, 400).composite([
          { input: await part("#00ff00"), left: 0, top: 0 },
          { input: await part("#0000ff"), left: 200, top: 0 },
          { input: await part("#ff0000"), left: 400, top: 0 }
        ]).jpeg({ quality: 95 }).withMetadata({ orientation: 6 })
          .withExif({ IFD0: { Copyright: "somebody's name" }, IFD3: { GPSLatitude: "52/1 0/1 0/1" } }).toBuffer()
      )
      assert.include(picture.toString("latin1"), "somebody's name")
      const image = yield* render(picture)
      const about = yield* Effect.promise(() => sharp(image).metadata())
      assert.deepStrictEqual([about.exif, about.icc, about.xmp, about.orientation], [
        undefined,
        undefined,
        undefined,
        undefined
      ])
      assert.notInclude(image.toString("latin1"), "somebody")
      const { data, info } = yield* Effect.promise(() => sharp(image).raw().toBuffer({ resolveWithObject: true }))
      const strongest = (x: number, y: number) => {
        const at = (y * info.width + x) * info.channels
        const pixel = [...data.subarray(at, at + 3)]
        return "rgb"[pixel.indexOf(Math.max(...pixel))]
      }
      // Upright it is 400 × 600, of which the middle 400 remain: half of the outer stripes.
      assert.deepStrictEqual([strongest(256, 30), strongest(256, 256), strongest(256, 480)], ["g", "b", "r"])
      assert.deepStrictEqual([strongest(30, 256), strongest(480, 256)], ["b", "b"])
    }))

  it.live("is refused if it is empty, of another kind, too small or broken", () =>
    Effect.gen(function*() {
      const png = yield* Effect.promise(() => plain(200, 200).png().toBuffer())
      assert.strictEqual(yield* refusal(Buffer.alloc(0)), "EmptyBody")
      for (
        const text of [
          "hello",
          '<svg xmlns="http://www.w3.org/2000/svg" width="500" height="500"/>',
          "BM",
          "II*\0",
          "%PDF-1.7"
        ]
      ) {
        assert.strictEqual(yield* refusal(Buffer.from(text)), "UnsupportedFormat", text)
      }
      for (const [width, height] of [[127, 500], [500, 127], [100, 100]] as const) {
        assert.strictEqual(
          yield* refusal(yield* Effect.promise(() => plain(width, height).png().toBuffer())),
          "ImageTooSmall"
        )
      }
      yield* render(yield* Effect.promise(() => plain(128, 128).png().toBuffer()))
      assert.strictEqual(yield* refusal(png.subarray(0, 12)), "DecodeFailed")
      assert.strictEqual(yield* refusal(Buffer.concat([png.subarray(0, 60), Buffer.alloc(200, 1)])), "DecodeFailed")
      const jpeg = yield* Effect.promise(() => plain(400, 400).jpeg().toBuffer())
      assert.strictEqual(yield* refusal(jpeg.subarray(0, jpeg.length / 2)), "DecodeFailed")
    }))

  it.live("is refused above 24 megapixels before anything is decoded", () =>
    Effect.gen(function*() {
      const error = yield* Effect.flip(render(bomb(20_000, 20_000)))
      assert.strictEqual(error._tag, "DecodeFailed")
      // The header says it, so nothing is decoded; the error of the decoder would say something else.
      assert.include(error.message, "24000000 pixels")
      assert.include((yield* Effect.flip(render(bomb(24_000_001 / 3, 4)))).message, "24000000 pixels")
      yield* render(bomb(6_000, 4_000))
    }))
})

const profile = { name: "Band", description: null, avatarUrl: null }

const layerPictures = (database: TestDatabase) =>
  Layer.unwrap(Effect.map(
    Effect.acquireRelease(
      Effect.promise(() => mkdtemp(join(tmpdir(), "parley-avatars-"))),
      (path) => Effect.promise(() => rm(path, { recursive: true, force: true }))
    ),
    (DATA_DIR) => layerModules(database, { DATA_DIR })
  ))

eachDatabase((database) => {
  layer(layerPictures(database))((it) => {
    it.effect("five writes a minute are accepted; refused writes do not count", () =>
      Effect.gen(function*() {
        const avatars = yield* Avatars
        const { id } = yield* newAgent("rate")
        const small = yield* Effect.promise(() => plain(64, 64).png().toBuffer())
        const good = yield* Effect.promise(() => plain(128, 128).png().toBuffer())
        for (let i = 0; i < 6; i++)
          assert.strictEqual((yield* Effect.flip(avatars.set(id, small)))._tag, "ImageTooSmall")
        assert.strictEqual((yield* Effect.flip(avatars.clear(id)))._tag, "NotFound")
        for (let i = 0; i < 4; i++)
          yield* avatars.set(id, good)
        yield* avatars.clear(id)
        for (let i = 0; i < 3; i++) {
          const error = yield* Effect.flip(avatars.set(id, good))
          assert.strictEqual(error._tag, "RateLimited")
          assert.isAbove(error._tag === "RateLimited" ? error.details?.retry_after_ms ?? 0 : 0, 0)
        }
        yield* TestClock.adjust("1 minute")
        for (let i = 0; i < 5; i++)
          yield* avatars.set(id, good)
        assert.strictEqual((yield* Effect.flip(avatars.set(id, good)))._tag, "RateLimited")
        // A clock that is set back makes the minute no longer.
        yield* TestClock.setTime((yield* Clock.currentTimeMillis) - 50_000)
        yield* TestClock.adjust("1 minute")
        yield* avatars.set(id, good)
      }))

    it.effect("agents' and groups' pictures share one budget, and only an admin's picture is looked at", () =>
      Effect.gen(function*() {
        const avatars = yield* Avatars
        const groups = yield* Groups
        const there = yield* entityClient(GroupEntity)
        const [a, b, out] = [yield* newAgent("group-a"), yield* newAgent("group-b"), yield* newAgent("group-out")]
        const { add_results, group } = yield* groups.create(a, { profile, handles: [b.handle] })
        yield* groups.accept(b, add_results[0]?.invite_id ?? "")
        const good = yield* Effect.promise(() => plain(128, 128).png().toBuffer())
        const refused = (
          agent: { readonly id: string },
          image: Effect.Effect<Buffer> = Effect.die("it was looked at")
        ) => Effect.map(Effect.flip(groups.setAvatar(agent.id, group.id, image)), ({ _tag }) => _tag)

        assert.strictEqual(yield* refused(out), "GroupNotFound")
        assert.strictEqual(yield* refused(b), "Forbidden")
        yield* groups.promote(a.id, group.id, b.handle)
        assert.strictEqual(yield* refused(b, Effect.succeed(Buffer.from("text"))), "UnsupportedFormat")
        const meanwhile = Effect.as(Effect.orDie(groups.demote(a.id, group.id, b.handle)), good)
        assert.strictEqual(yield* refused(b, meanwhile), "Forbidden")
        assert.strictEqual((yield* Effect.flip(groups.clearAvatar(b.id, group.id)))._tag, "Forbidden")
        // However far a picture has got: what was an admin's is decided on the rows again.
        const { key } = yield* avatars.store(Buffer.from("of a demoted admin"))
        const { ClearAvatar, Update } = there(group.id)
        const told = { actorId: b.id, messageIds: [] }
        assert.strictEqual((yield* Effect.flip(Update({ ...told, avatarKey: key })))._tag, "Forbidden")
        assert.strictEqual((yield* Effect.flip(ClearAvatar(told)))._tag, "Forbidden")
        assert.strictEqual((yield* groups.get(a.id, group.id)).avatar_url, null)

        yield* groups.promote(a.id, group.id, b.handle)
        assert.strictEqual((yield* Effect.flip(groups.clearAvatar(b.id, group.id)))._tag, "NotFound")
        for (let i = 0; i < 2; i++) yield* groups.setAvatar(b.id, group.id, Effect.succeed(good))
        yield* groups.clearAvatar(b.id, group.id)
        for (let i = 0; i < 2; i++) yield* avatars.set(b.id, good)
        assert.strictEqual((yield* Effect.flip(avatars.set(b.id, good)))._tag, "RateLimited")
        assert.strictEqual(yield* refused(b, Effect.succeed(good)), "RateLimited")
        yield* groups.setAvatar(a.id, group.id, Effect.succeed(good))
        assert.strictEqual((yield* Effect.flip(groups.clearAvatar(b.id, group.id)))._tag, "RateLimited")
        assert.notStrictEqual((yield* groups.get(a.id, group.id)).avatar_url, null)
      }))

    it.effect("a demotion at the same time comes before the picture or after it", () =>
      Effect.gen(function*() {
        const groups = yield* Groups
        const conversations = yield* Conversations
        const good = yield* Effect.promise(() => plain(128, 128).png().toBuffer())
        const [a, b] = [yield* newAgent("race-a"), yield* newAgent("race-b")]
        for (let i = 0; i < 8; i++) {
          yield* TestClock.adjust("1 minute")
          const { add_results, group } = yield* groups.create(a, { profile, handles: [b.handle] })
          yield* groups.accept(b, add_results[0]?.invite_id ?? "")
          yield* groups.promote(a.id, group.id, b.handle)
          const [set] = yield* Effect.all([
            Effect.result(groups.setAvatar(b.id, group.id, Effect.succeed(good))),
            Effect.andThen(
              Effect.forEach(Array.from({ length: 4 * i }), () => Effect.promise(breath)),
              groups.demote(a.id, group.id, b.handle)
            )
          ], { concurrency: 2 })
          const texts = yield* conversations.history(a.id, group.id, {
            limit: 200,
            before: null,
            after: 0,
            around: null
          })
          const events = texts.flatMap((text) => /"event":"(avatar_changed|admin_demoted)"/.exec(text)?.[1] ?? [])
          const done = set._tag === "Success"
          assert.deepStrictEqual(events, done ? ["avatar_changed", "admin_demoted"] : ["admin_demoted"])
          if (!done) assert.strictEqual(set.failure._tag, "Forbidden")
          assert.strictEqual((yield* groups.get(a.id, group.id)).avatar_url !== null, done)
        }
      }))

    it.effect("a picture that agents and groups share stays until none of them has it", () =>
      Effect.gen(function*() {
        const avatars = yield* Avatars
        const groups = yield* Groups
        const repo = yield* AvatarsRepo
        /** Whether the sweep would remove it, whenever it came. */
        const isReleased = (key: string) => repo.condemn(key, Number.MAX_SAFE_INTEGER)
        const of = (background: string) => Effect.promise(() => plain(200, 200, background).png().toBuffer())
        const [one, other] = [yield* of("#445566"), yield* of("#99aabb")]
        const [a, b, leaver] = [yield* newAgent("held-a"), yield* newAgent("held-b"), yield* newAgent("held-leaver")]
        const { group } = yield* groups.create(a, { profile, handles: [] })
        const set = (image: Buffer) => groups.setAvatar(a.id, group.id, Effect.succeed(image))

        const first = yield* avatars.set(b.id, one)
        assert.deepStrictEqual(yield* set(one), first)
        yield* avatars.clear(b.id)
        assert.isFalse(yield* isReleased(first.key))
        yield* avatars.set(b.id, one)
        const second = yield* set(other)
        assert.strictEqual((yield* groups.get(a.id, group.id)).avatar_url, second.url)
        assert.isFalse(yield* isReleased(first.key))
        yield* avatars.clear(b.id)
        assert.isTrue(yield* isReleased(first.key))

        // A group that was given only the URL has the picture all the same, and keeps it over other changes.
        const { group: copy } = yield* groups.create(leaver, {
          profile: { ...profile, avatarUrl: second.url },
          handles: []
        })
        yield* groups.update(leaver.id, copy.id, { name: "Renamed" })
        yield* groups.remove(a.id, group.id)
        assert.isFalse(yield* isReleased(second.key))
        assert.strictEqual((yield* groups.get(leaver.id, copy.id)).avatar_url, second.url)
        // The last member takes the group along, and with it the picture.
        yield* groups.leave(leaver.id, copy.id)
        assert.isTrue(yield* isReleased(second.key))
        // Nobody has what is condemned back before it is gone; then it may come again.
        assert.strictEqual((yield* Effect.flip(avatars.set(leaver.id, other)))._tag, "Unavailable")
        yield* repo.remove(second.key)
        assert.deepStrictEqual(yield* avatars.set(leaver.id, other), second)
      }))

    it.effect("a picture is named after its content, shared by its owners, and removed with the last of them", () =>
      Effect.gen(function*() {
        const agents = yield* Agents
        const avatars = yield* Avatars
        const [a, b] = [yield* newAgent("share-a"), yield* newAgent("share-b")]
        const one = yield* Effect.promise(() => plain(200, 200, "#112233").png().toBuffer())
        const other = yield* Effect.promise(() => plain(200, 200, "#ccddee").png().toBuffer())
        const first = yield* avatars.set(a.id, one)
        assert.deepStrictEqual(yield* avatars.set(b.id, one), first)
        const shown = Effect.map(
          agents.byHandle(a.handle),
          (agent) => agent === undefined ? undefined : agents.avatarUrl(agent)
        )
        assert.strictEqual(yield* shown, first.url)
        const second = yield* avatars.set(a.id, other)
        assert.notStrictEqual(second.key, first.key)
        assert.strictEqual(yield* shown, second.url)
        yield* (yield* Accounts).remove(a.id)

        const isThere = (key: string) => Effect.map(Effect.result(avatars.read(key)), ({ _tag }) => _tag === "Success")
        const until = Effect.fnUntraced(function*(key: string, there: boolean) {
          // The job works beside the test, on real files and a real database, and comes again every hour.
          for (let i = 0; i < 40_000 && (yield* isThere(key)) !== there; i++) {
            if (i < 400) yield* TestClock.adjust("10 minutes")
            yield* Effect.promise(breath)
          }
          assert.strictEqual(yield* isThere(key), there)
        })
        yield* leap("26 hours")
        yield* until(second.key, false)
        assert.isTrue(yield* isThere(first.key))
        yield* avatars.clear(b.id)
        yield* leap("26 hours")
        yield* until(first.key, false)
        // One that went may come again.
        assert.deepStrictEqual(yield* avatars.set(b.id, one), first)
        assert.isTrue(yield* isThere(first.key))
      }))
  })
})
