import htm from "htm"
import { h } from "preact"

/** @import { VNode } from "preact" */

/**
 * Makes elements from a template: `html\`<p>${text}</p>\``. An inserted value is shown as text or as an element, never
 * parsed as markup.
 * @type {(strings: TemplateStringsArray, ...values: Array<any>) => VNode<any>}
 */
export const html = /** @type {any} */ (htm.bind(/** @type {any} */ (h)))

/**
 * Joins the class names that are not empty, false, null or undefined.
 * @param {...(string | false | undefined | null)} names
 */
export const classes = (...names) => names.filter(Boolean).join(" ")
