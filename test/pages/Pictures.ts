import { mkdirSync } from "node:fs"
import { join } from "node:path"
import type { Page } from "playwright-core"
import sharp from "sharp"

/** Where pictures for the documentation are put; undefined: none are made. */
const PICTURES = process.env["PICTURES"]

export const takesPictures = PICTURES !== undefined

/** Takes a small picture of the page as it is. */
export const picture = async (page: Page, name: string): Promise<void> => {
  if (PICTURES === undefined) return
  mkdirSync(PICTURES, { recursive: true })
  await sharp(await page.screenshot()).png({ palette: true, colours: 128 }).toFile(join(PICTURES, `${name}.png`))
}
