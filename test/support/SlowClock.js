// For `node --import`: the clocks of this process alone, wall clock and monotonic clock, run CLOCK_SLOWNESS times
// slower than the machine's. Timers keep their real time. A rate of ten a second is then one of ten in CLOCK_SLOWNESS
// seconds, so that a burst stays within its window on any machine.
const slowness = Number(process.env["CLOCK_SLOWNESS"] ?? 1)

const machineNow = Date.now
const monotonic = performance.now.bind(performance)
const [begunAt, begun] = [machineNow(), monotonic()]
performance.now = () => begun + (monotonic() - begun) / slowness
Date.now = () => Math.floor(begunAt + performance.now() - begun)

globalThis.Date = new Proxy(Date, {
  construct: (target, given, made) => Reflect.construct(target, given.length === 0 ? [Date.now()] : given, made),
  apply: () => new Date().toString()
})
