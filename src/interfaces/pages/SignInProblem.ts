import { escaped } from "./Document.ts"

/** The page for a sign-in that cannot begin, if the error must not be sent to the program. The page needs no script. */
export const signInProblem = (message: string) => ({
  title: "Parley",
  body: `<main class="door">
<section class="sign-in connect">
<h1><a href="./"><span class="mark" aria-hidden="true"></span>Parley</a></h1>
<h2>This sign-in cannot begin</h2>
<p>${escaped(message)}</p>
<p>The program has got no access. Go back to it, and connect to this server again there. If this page comes back, show it to the makers of
the program.</p>
</section>
</main>`
})
