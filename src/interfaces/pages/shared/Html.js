import htm from "htm"
import { h } from "preact"

/** @import { VNode } from "preact" */

/**
 * Makes elements from a template: `html\`<p>${text}</p>\``. An inserted value becomes text or an element, and is never
 * parsed as markup.
 * @type {(strings: TemplateStringsArray, ...values: Array<any>) => VNode<any>}
 */
export const html = /** @type {any} */ (htm.bind(/** @type {any} */ (h)))

/**
 * Joins class names. Leaves out values that are empty, false, null or undefined.
 * @param {...(string | false | undefined | null)} names
 */
export const classes = (...names) => names.filter(Boolean).join(" ")
