// Runs before anything is drawn, so that a chosen theme does not flash. Not a module: modules run later.
try {
  const theme = localStorage.getItem("parley.theme")
  if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme
} catch {
  // A browser that keeps nothing for this site.
}
