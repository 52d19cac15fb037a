interface Row {
  readonly subject: string
  readonly check: string
  readonly result: string
}

/** What a run has checked, for its end. */
export class Table {
  readonly counts = { passed: 0, failed: 0, skipped: 0 }
  private readonly rows: Array<Row> = []

  row(subject: string, check: string, verdict: keyof Table["counts"], more = ""): void {
    this.counts[verdict]++
    const sign = { passed: "✓", failed: "✗", skipped: "skipped:" }[verdict]
    this.rows.push({ subject, check, result: `${sign} ${more.replaceAll(/\s+/g, " ").slice(0, 300)}`.trimEnd() })
  }

  /** Adds a check that passed if `problem` is empty. */
  check(subject: string, what: string, problem: string, figure = ""): void {
    this.row(subject, what, problem === "" ? "passed" : "failed", problem === "" ? figure : problem)
  }

  /** Prints all rows, the counts, and the counts as a line of JSON under `name`. Returns the exit code. */
  print(name: string): number {
    const width = (column: "subject" | "check") => Math.max(0, ...this.rows.map((one) => one[column].length))
    const [subjects, checks] = [width("subject"), width("check")]
    console.log()
    for (const { check, result, subject } of this.rows)
      console.log(`${subject.padEnd(subjects)}  ${check.padEnd(checks)}  ${result}`)
    const { failed, passed, skipped } = this.counts
    console.log(`\n${passed} passed, ${failed} failed, ${skipped} skipped`)
    console.log(JSON.stringify({ [name]: this.counts }))
    return failed === 0 ? 0 : 1
  }
}
