import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import type { Browser, Locator, Page } from "playwright-core"
import { eventually } from "../support/Eventually.ts"
import { newAgent, type Server, sharedServer, type TestAgent } from "../support/Server.ts"
import { CHROMIUM, launch, MISSING, Watched } from "./Browser.ts"
import { groupOf, pane, send, signIn, talk } from "./Panes.ts"

declare const document: { readonly documentElement: { readonly scrollWidth: number } }

/** The rest of these tests: `npm run test:pages`. */
const ALL = process.env["PAGES"] === "all"

let browser: Browser
let server: Server

const view = (at: Locator, name: string) =>
  at.getByRole("group", { name: "Views" }).getByRole("button", { name }).click()
const open = (at: Locator, name: string | RegExp) =>
  at.getByRole("list", { name: "Conversations" }).getByRole("button", { name }).first().click()
const message = (at: Locator, text: string) => at.getByRole("article").filter({ hasText: text })
const fits = async (page: Page) => assert.isAtMost(await page.evaluate(() => document.documentElement.scrollWidth), 360)
const hasFocus = (watched: Watched, what: RegExp) =>
  eventually(`the focus on ${what}`, async () => what.test(await watched.focused()) ? true : undefined)
/** Makes the window as small as a phone, with touch as its input. */
const toPhone = async (page: Page) => {
  await page.setViewportSize({ width: 360, height: 740 })
  const session = await page.context().newCDPSession(page)
  await session.send("Emulation.setTouchEmulationEnabled", { enabled: true, maxTouchPoints: 1 })
}
/** A button or an option can be hit with a thumb. */
const isLarge = async (target: Locator) => {
  const box = await target.boundingBox()
  assert.isAtLeast(Math.min(box!.width, box!.height), 43.9, await target.innerText())
}

describe.skipIf(CHROMIUM === undefined || !ALL)(`dialogs of /app${MISSING}`, () => {
  beforeAll(async () => {
    ;[browser, server] = await Promise.all([launch(), sharedServer()])
  })
  afterAll(async () => {
    await browser?.close()
    await server?.stop()
  })

  it("the menu of a message has Hide, and says that nobody can edit a message or delete it for everyone", async () => {
    const [ada, bob] = await Promise.all(["ada", "bob"].map((name) => newAgent(server, name)))
    await talk(ada!, bob!)
    await send(ada!, { to: bob!.handle, content: { text: "With a tpyo" } })
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await signIn(server, page, ada!)
    const adas = pane(page, ada!)
    await open(adas, bob!.handle)
    const own = message(adas, "With a tpyo")
    await own.focus()
    await watched.tabTo(/^BUTTON More/)
    await page.keyboard.press("Enter")
    const menu = own.getByRole("group", { name: "More actions" })
    await menu.getByText("cannot be edited").waitFor()
    await menu.getByText("delete it for everyone").waitFor()
    await watched.accessible()
    await page.keyboard.press("Tab")
    await hasFocus(watched, /^BUTTON Hide/)
    await page.keyboard.press("Enter")
    await menu.getByRole("group", { name: "Hide the message for this agent?" }).waitFor()
    await hasFocus(watched, /^BUTTON Hide/)
    await page.keyboard.press("Escape")
    await menu.getByRole("button", { name: "Hide" }).waitFor()
    await page.keyboard.press("Escape")
    await menu.waitFor({ state: "detached" })
    await hasFocus(watched, /^BUTTON More/)

    await toPhone(page)
    const others = message(adas, "I am.")
    await others.getByText("I am.").click()
    await others.getByRole("button", { name: "More" }).click()
    const text = others.getByText("Hide removes the message for this agent only.")
    await text.waitFor()
    assert.notInclude(await text.textContent(), "edited")
    await isLarge(others.getByRole("button", { name: "Hide" }))
    await fits(page)
    await watched.accessible()
    await watched.close()
  })

  it("members of a group are chosen from contacts and the directory while typing, as chips, by keyboard", async () => {
    const [ada, bob, carl, dora] = await Promise.all([
      newAgent(server, "ada"),
      newAgent(server, "bob", { display_name: "Robert Harbour" }),
      newAgent(server, "carl"),
      newAgent(server, "dora")
    ])
    await talk(ada, bob)
    await ada.http.post("/v1/contacts", { handle: carl.handle })
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await signIn(server, page, ada)
    const adas = pane(page, ada)
    await view(adas, "New")
    const field = adas.getByRole("combobox", { name: "Members" })
    const option = (name: string) => adas.getByRole("option", { name })
    const chips = adas.getByRole("list", { name: "Chosen agents" }).getByRole("listitem")
    const chosen = (count: number) =>
      eventually(`${count} chips`, async () => await chips.count() === count ? true : undefined)
    await adas.getByLabel("Name", { exact: true }).fill("Harbour watch")

    // The arrow keys open the list of contacts. Escape closes the list and nothing else.
    await field.focus()
    assert.strictEqual(await adas.getByRole("option").count(), 0)
    await page.keyboard.press("ArrowDown")
    await option(bob.handle).waitFor()
    await option(carl.handle).waitFor()
    assert.strictEqual(await field.getAttribute("aria-activedescendant"), null)
    await watched.accessible()
    await page.keyboard.press("Escape")
    await adas.getByRole("listbox").waitFor({ state: "detached" })
    assert.strictEqual(await adas.getByLabel("Name", { exact: true }).inputValue(), "Harbour watch")
    assert.strictEqual(await field.getAttribute("aria-expanded"), "false")

    // By a word of the name, and by the handle of an agent that is no contact.
    await page.keyboard.type("harb")
    await option("Robert Harbour").and(adas.locator("[aria-selected=true]")).waitFor()
    await page.keyboard.press("Enter")
    await chosen(1)
    await hasFocus(watched, /^INPUT/)
    await page.keyboard.type(`${dora.handle}`)
    await option(dora.handle).first().waitFor()
    await page.keyboard.press("Enter")
    await chosen(2)
    await page.keyboard.type(carl.handle.slice(0, 4))
    await option(carl.handle).click()
    await chosen(3)
    await hasFocus(watched, /^INPUT/)
    await watched.accessible()
    // Backspace in the empty field removes the last chip, and a click on ✕ any.
    await page.keyboard.press("Backspace")
    await chosen(2)
    await adas.getByRole("button", { name: `Remove @${dora.handle}` }).click()
    await chosen(1)
    await hasFocus(watched, /^INPUT/)
    // An agent that is chosen is not offered again. Handles can be pasted.
    await page.keyboard.press("ArrowDown")
    await option(carl.handle).waitFor()
    assert.strictEqual(await option(bob.handle).count(), 0)
    await page.keyboard.press("Escape")
    await field.fill(`@${carl.handle}, nobody-at-all-here, ${dora.handle}`)
    await page.keyboard.press("Enter")
    await chosen(2)
    await adas.getByRole("alert").getByText("No agent has the handle @nobody-at-all-here.").waitFor()
    assert.strictEqual(await field.inputValue(), `nobody-at-all-here, ${dora.handle}`)

    await toPhone(page)
    await field.fill(dora.handle)
    await option(dora.handle).first().waitFor()
    await fits(page)
    await isLarge(option(dora.handle).first())
    await isLarge(adas.getByRole("button", { name: `Remove @${carl.handle}` }))
    await watched.accessible()
    await page.keyboard.press("Enter")
    await chosen(3)
    await fits(page)
    await isLarge(adas.getByRole("button", { name: "Make the group" }))
    await adas.getByRole("button", { name: "Make the group" }).click()
    await adas.getByRole("heading", { name: "Harbour watch", level: 2 }).waitFor()
    // A group without messages.
    await watched.accessible()
    const invites = async (agent: TestAgent) =>
      ((await agent.http.get("/v1/groups/invites")).body as ReadonlyArray<unknown>).length
    assert.deepStrictEqual([await invites(bob), await invites(carl), await invites(dora)], [1, 1, 1])
    await watched.close()
  })

  it("roles, invites and removals of a group are in its panel, for those who may, without a typed handle", async () => {
    const [ada, bob, carl, dora] = await Promise.all(
      ["ada", "bob", "carl", "dora"].map((name) => newAgent(server, name))
    )
    await talk(ada!, dora!)
    const id = await groupOf(ada!, "Crew", bob!, carl!)
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await signIn(server, page, bob!, ada!)
    const [adas, bobs] = [pane(page, ada!), pane(page, bob!)]
    const panelOf = async (at: Locator) => {
      await open(at, "Crew")
      await at.getByRole("button", { name: "Group", exact: true }).click()
      return at.getByRole("complementary")
    }
    const panel = await panelOf(adas)
    const row = (at: Locator, agent: TestAgent) => at.getByRole("listitem").filter({ hasText: `@${agent.handle}` })
    const theirs = await panelOf(bobs)
    await theirs.getByText("Admins of the group invite and remove agents").waitFor()
    assert.strictEqual(await row(theirs, carl!).getByRole("button", { name: /^(Make|Remove)/ }).count(), 0)
    await row(panel, bob!).getByRole("button", { name: "Make admin" }).click()
    await row(panel, bob!).getByText("admin", { exact: true }).waitFor()
    // The other admin may remove a member, and not the creator.
    await row(theirs, carl!).getByRole("button", { name: `Remove @${carl!.handle}` }).waitFor()
    assert.strictEqual(await row(theirs, ada!).getByRole("button", { name: /^(Make|Remove)/ }).count(), 0)
    assert.strictEqual(await row(panel, ada!).getByRole("button", { name: /^(Make|Remove)/ }).count(), 0)
    await watched.accessible()

    // An invite from the contacts, by keyboard; those who are in the group are not offered.
    const field = panel.getByRole("combobox", { name: "Invite" })
    await field.focus()
    await page.keyboard.press("ArrowDown")
    await panel.getByRole("option", { name: dora!.handle }).waitFor()
    assert.strictEqual(await panel.getByRole("option").count(), 1)
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("Enter")
    await panel.getByRole("button", { name: `Remove @${dora!.handle}` }).waitFor()
    await page.keyboard.press("Enter")
    await row(panel, dora!).getByText("invited", { exact: true }).waitFor()
    await adas.getByText(`@${dora!.handle} is invited.`).waitFor()
    for (const agent of [bob!, dora!]) {
      await field.fill(agent.handle)
      await page.keyboard.press("Enter")
      await panel.getByRole("alert").getByText(
        agent === bob ? "is in the group already" : "is invited already"
      ).waitFor()
    }
    await field.fill("")
    await toPhone(page)
    for (const name of ["Cancel the invite", `Remove @${carl!.handle}`, "Make member"])
      await isLarge((name.startsWith("Make") ? row(panel, bob!) : panel).getByRole("button", { name }).first())
    await fits(page)
    await watched.accessible()
    await row(panel, dora!).getByRole("button", { name: "Cancel the invite" }).click()
    await row(panel, dora!).waitFor({ state: "detached" })
    await row(panel, carl!).getByRole("button", { name: "Remove" }).click()
    await row(panel, carl!).getByRole("group").getByRole("button", { name: "Remove" }).click()
    await row(panel, carl!).waitFor({ state: "detached" })
    await hasFocus(watched, /^H3 Crew/)

    // An admin may become an ordinary member itself.
    await page.setViewportSize({ width: 1280, height: 800 })
    await row(theirs, bob!).getByRole("button", { name: "Make member: yourself" }).click()
    await row(theirs, bob!).getByRole("group").getByRole("button", { name: "Make member" }).click()
    await theirs.getByText("Admins of the group invite and remove agents").waitFor()
    assert.strictEqual(await theirs.getByRole("combobox").count(), 0)
    // What has changed meanwhile is said, and the panel shows the group as it is.
    await row(panel, bob!).getByRole("button", { name: "Make admin" }).waitFor()
    await page.route(`**/members/${bob!.handle}`, async (route) => {
      await bob!.http.post(`/v1/groups/${id}/leave`)
      await route.continue()
    })
    await row(panel, bob!).getByRole("button", { name: "Remove" }).click()
    await row(panel, bob!).getByRole("group").getByRole("button", { name: "Remove" }).click()
    await adas.getByText(`@${bob!.handle} is not in the group any more.`).waitFor()
    await row(panel, bob!).waitFor({ state: "detached" })
    await watched.close()
  })

  it("New says in a sentence why one cannot write to an agent, or what one should know, before one writes", async () => {
    const [ada, bob, carl, dora] = await Promise.all(
      ["ada", "bob", "carl", "dora"].map((name) => newAgent(server, name))
    )
    await ada!.http.post(`/v1/contacts/${bob!.handle}/block`)
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    const statuses = new Map([[carl!.handle, "suspended"], [dora!.handle, "restricted"]])
    await page.route("**/v1/agents/*", async (route) => {
      const response = await route.fetch()
      const status = statuses.get(new URL(route.request().url()).pathname.split("/").at(-1)!)
      await route.fulfill({
        response,
        json: { ...await response.json() as object, ...status === undefined ? {} : { status } }
      })
    })
    await signIn(server, page, ada!)
    const adas = pane(page, ada!)
    const field = adas.getByRole("combobox", { name: "Name or handle" })
    const alert = adas.getByRole("alert")
    const type = async (text: string) => {
      await field.fill(text)
      await adas.getByRole("button", { name: "Write", exact: true }).click()
    }
    await view(adas, "New")
    for (
      const [typed, sentence] of [
        [`@${ada!.handle}`, `@${ada!.handle} is the agent that you write as. Choose another agent.`],
        ["nobody-at-all-here", "No agent has the handle @nobody-at-all-here. Check the spelling"],
        ["Bob Harbour", "“Bob Harbour” is not a handle. Choose the agent from the list"],
        [bob!.handle, `@${ada!.handle} blocks @${bob!.handle}, so neither can write to the other.`]
      ] as const
    ) {
      await type(typed)
      await alert.getByText(sentence).waitFor()
      assert.strictEqual(await field.inputValue(), typed)
      assert.notMatch((await alert.textContent())!, /[A-Z]{3}|_/)
      await watched.accessible()
    }
    await toPhone(page)
    await fits(page)
    // The profile of the blocked agent unblocks it.
    await isLarge(adas.getByRole("button", { name: `Profile of @${bob!.handle}` }))
    await adas.getByRole("button", { name: `Profile of @${bob!.handle}` }).click()
    await page.getByRole("dialog").getByRole("button", { name: "Unblock" }).click()
    await page.getByRole("dialog").getByRole("button", { name: "Block", exact: true }).waitFor()
    await page.keyboard.press("Escape")
    await alert.waitFor({ state: "detached" })
    await page.setViewportSize({ width: 1280, height: 800 })
    await type(bob!.handle)
    const composer = adas.getByRole("textbox", { name: "Message" })
    await composer.waitFor()
    await adas.getByText("There are no messages yet.").waitFor()

    for (const [agent, sentence] of [[carl!, "is suspended."], [dora!, "is restricted. It can answer you"]] as const) {
      await view(adas, "New")
      await type(agent.handle)
      await adas.getByText(`@${agent.handle} ${sentence}`).waitFor()
      await composer.waitFor()
    }
    await watched.accessible()
    statuses.set("me", "restricted")
    await view(adas, "New")
    await type(bob!.handle)
    await adas.getByText(`@${ada!.handle} is restricted: it can answer, but cannot begin conversations.`).waitFor()
    // A link says it too.
    await page.goto(`${server.url}/app#/${ada!.handle}/@${ada!.handle}`)
    await alert.getByText("is the agent that you write as").waitFor()
    assert.strictEqual(await composer.count(), 0)
    await watched.close()
  })

  it("a refused invite is a sentence that says what to do, from New and from the panel", async () => {
    const [ada, bob, carl, dora] = await Promise.all(
      ["ada", "bob", "carl", "dora"].map((name) => newAgent(server, name))
    )
    await bob!.http.post(`/v1/contacts/${ada!.handle}/block`)
    await carl!.http.patch(`/v1/agents/${carl!.handle}`, { settings: { group_invite_policy: "contacts_only" } })
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await signIn(server, page, ada!)
    const adas = pane(page, ada!)
    const says = {
      bob: `@${bob!.handle} cannot be invited, because one of the two agents blocks the other.`,
      carl: `@${carl!.handle} accepts invites only from its contacts. Ask it to add @${ada!.handle} to its contacts.`,
      dora: `@${dora!.handle} was invited to this group recently and cannot be invited again yet. Try again in 24 h.`
    }
    await view(adas, "New")
    await adas.getByLabel("Name", { exact: true }).fill("\u200b")
    await adas.getByRole("button", { name: "Make the group" }).click()
    await adas.getByRole("alert").getByText("The name needs at least one visible character").waitFor()
    await adas.getByLabel("Name", { exact: true }).fill("Crew")
    await adas.getByLabel("Members").fill([bob, carl, dora].map((agent) => agent!.handle).join(", "))
    await adas.getByRole("button", { name: "Make the group" }).click()
    await adas.getByRole("heading", { name: "Crew", level: 2 }).waitFor()
    for (const text of [says.bob, says.carl]) await adas.getByText(text).waitFor()
    assert.notMatch(await adas.locator(".notices").innerText(), /[A-Z]{3}|_/)
    await adas.getByRole("textbox", { name: "Message" }).fill("Hello")
    await page.keyboard.press("Enter")
    await message(adas, "Hello").waitFor()

    const [invite] = (await dora!.http.get("/v1/groups/invites")).body as ReadonlyArray<{ readonly id: string }>
    await dora!.http.delete(`/v1/groups/invites/${invite!.id}`)
    await adas.getByRole("button", { name: "Group", exact: true }).click()
    const panel = adas.getByRole("complementary")
    await panel.getByRole("combobox", { name: "Invite" }).fill(
      [bob, carl, dora].map((agent) => agent!.handle).join(", ")
    )
    await panel.getByRole("button", { name: "Invite", exact: true }).click()
    for (const text of Object.values(says)) await panel.getByRole("alert").getByText(text).waitFor()
    await toPhone(page)
    await fits(page)
    await watched.accessible()
    await watched.close()
  })

  it("an open conversation says why nobody can write in it", async () => {
    const [ada, bob] = await Promise.all(["ada", "bob"].map((name) => newAgent(server, name)))
    await talk(ada!, bob!)
    const watched = await Watched.open(browser, server.url)
    const { page } = watched
    await signIn(server, page, ada!)
    const adas = pane(page, ada!)
    await open(adas, bob!.handle)
    const composer = adas.getByRole("textbox", { name: "Message" })
    await composer.waitFor()
    await adas.getByRole("button", { name: "About" }).click()
    await adas.getByRole("button", { name: "Block" }).click()
    await adas.getByRole("group", { name: /^Block/ }).getByRole("button", { name: "Block" }).click()
    await adas.getByText(`@${ada!.handle} blocks @${bob!.handle}, so neither can write to the other.`).waitFor()
    assert.strictEqual(await composer.count(), 0)
    await watched.accessible()
    await adas.getByRole("button", { name: "Unblock" }).click()
    await composer.waitFor()
    await watched.close()
  })
})
