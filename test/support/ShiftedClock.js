// For `node --import`: the wall clock of this process alone is CLOCK_SHIFT_SECONDS ahead of the machine's (behind, if
// negative), and is set forward by CLOCK_JUMP_SECONDS with each SIGUSR2. As on a machine whose clock is wrong, the
// monotonic clock is right. With CLOCK_LEAP_SECONDS, each SIGUSR2 sets both clocks forward by so much, and timers keep
// their real time.
const secondsOf = (name) => Number(process.env[name] ?? 0) * 1000

let shift = secondsOf("CLOCK_SHIFT_SECONDS")
const jump = secondsOf("CLOCK_JUMP_SECONDS")
if (jump !== 0) process.on("SIGUSR2", () => (shift += jump))

const leap = secondsOf("CLOCK_LEAP_SECONDS")
if (leap !== 0) {
  const monotonic = performance.now.bind(performance)
  let leapt = 0
  performance.now = () => monotonic() + leapt
  process.on("SIGUSR2", () => {
    leapt += leap
    shift += leap
  })
}

const machineNow = Date.now
const { timeOrigin } = performance
Date.now = () => machineNow() + shift
Object.defineProperty(performance, "timeOrigin", { get: () => timeOrigin + shift })

globalThis.Date = new Proxy(Date, {
  construct: (target, given, made) => Reflect.construct(target, given.length === 0 ? [Date.now()] : given, made),
  apply: () => new Date().toString()
})
