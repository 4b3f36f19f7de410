import { useSyncExternalStore } from 'react'

// The director's clock. What the director says of times is compared with its own clock, because that of this machine
// may be wrong. Every answer has the director's time, in whole seconds.

const exact = 5000 // ms: what a second's fraction and a slow answer explain is no error of a clock

let ahead = 0 // ms, of this machine's clock before the director's
const watchers = new Set<() => void>()

// difference is how far this machine's clock was ahead of the director's, in ms, at an answer with the director's time.
// asked and answered are times of this machine's clock. It is 0 if the clocks may be the same.
export function difference(date: string | null, asked: number, answered: number): number {
  const from = Date.parse(date ?? '')
  if (Number.isNaN(from)) return 0
  const to = from + 1000
  // The director said its time between the question and the answer.
  if (asked - exact <= to && from <= answered + exact) return 0
  return Math.round((asked + answered) / 2 - (from + to) / 2)
}

// hear takes the time of an answer.
export function hear(date: string | null, asked: number, answered: number): void {
  const told = date === null ? ahead : difference(date, asked, answered)
  if (Math.abs(told - ahead) < exact) return
  ahead = told
  for (const w of watchers) w()
}

// now is the time by the director's clock.
export const now = () => new Date(Date.now() - ahead)

// watchClock calls changed when this machine's clock is found to be wrong in another way. It returns what ends that.
export function watchClock(changed: () => void): () => void {
  watchers.add(changed)
  return () => watchers.delete(changed)
}

// useAhead is how far this machine's clock is ahead of the director's, in ms; negative where it is behind.
export const useAhead = () => useSyncExternalStore(watchClock, () => ahead)
