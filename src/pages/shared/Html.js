import htm from "htm"
import { h } from "preact"

/** @import { VNode } from "preact" */

/**
 * Makes elements from a template: `html\`<p>${text}</p>\``. What is put in is text or elements, never markup.
 * @type {(strings: TemplateStringsArray, ...values: Array<any>) => VNode<any>}
 */
export const html = /** @type {any} */ (htm.bind(/** @type {any} */ (h)))

/**
 * Class names from those that hold.
 * @param {...(string | false | undefined | null)} names
 */
export const classes = (...names) => names.filter(Boolean).join(" ")
