// Applies a chosen theme before the page is drawn, so that the other theme does not flash. This script is not a module,
// because modules run later.
try {
  const theme = localStorage.getItem("parley.theme")
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme
} catch {
  // The browser stores nothing for this site.
}
