import { useMemo, useSyncExternalStore } from 'react'
import { now as directorsNow, watchClock } from '../api/clock'

// duration says how long something takes, in the two greatest units: "1 h 5 min".
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds))
  if (whole < 60) return `${whole} s`
  const units: [string, number][] = [
    ['d', 86400],
    ['h', 3600],
    ['min', 60],
    ['s', 1],
  ]
  const parts: string[] = []
  let rest = whole
  for (const [name, size] of units) {
    const n = Math.floor(rest / size)
    rest -= n * size
    if (n > 0) parts.push(`${n} ${name}`)
    if (parts.length > 0 && (parts.length === 2 || n === 0)) break
  }
  return parts.join(' ')
}

// ago says how far a time is from now: "5 min ago", "in 2 d".
export function ago(time: Date, now: Date): string {
  const seconds = (now.getTime() - time.getTime()) / 1000
  if (Math.abs(seconds) < 5) return 'now'
  const most = duration(Math.abs(seconds)).split(' ').slice(0, 2).join(' ')
  return seconds > 0 ? `${most} ago` : `in ${most}`
}

// One clock for all times on the page.
let now = directorsNow()
const watchers = new Set<() => void>()
let timer: ReturnType<typeof setInterval> | undefined
let unwatch = () => {}

function tick(): void {
  now = directorsNow()
  for (const w of watchers) w()
}

// watch is one function for all renders: React begins to watch anew when it is given another, and the first watcher
// sets the clock, which stood still while no page showed a time.
function watch(changed: () => void): () => void {
  watchers.add(changed)
  if (timer === undefined) {
    timer = setInterval(tick, 5000)
    unwatch = watchClock(tick)
    tick()
  }
  return () => {
    watchers.delete(changed)
    if (watchers.size > 0) return
    clearInterval(timer)
    unwatch()
    timer = undefined
  }
}

export function useNow(): Date {
  return useSyncExternalStore(watch, () => now)
}

// Time shows a time as people say it; the exact one, in this browser's zone and in UTC, is its title.
// It is drawn again only when that changes: a list has hundreds of times.
export function Time({ at }: { at: string | undefined }) {
  const time = useMemo(() => new Date(at ?? NaN), [at])
  const known = !Number.isNaN(time.getTime())
  const text = useSyncExternalStore(watch, () => (known ? ago(time, now) : (at ?? '–')))
  const title = useMemo(() => (known ? `${time.toLocaleString()} (${time.toISOString()})` : ''), [time, known])
  if (!known) return <>{text}</>
  return (
    <time dateTime={at} title={title}>
      {text}
    </time>
  )
}
