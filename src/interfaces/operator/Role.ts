import { Schema } from "effect"

/** The roles of links, sessions and tokens. Each may do what the roles before it may do, and more. */
export const Role = Schema.Literals(["viewer", "moderator", "operator"])
export type Role = typeof Role.Type
