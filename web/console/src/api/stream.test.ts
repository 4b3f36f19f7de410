import { afterEach, beforeEach, expect, test, vi } from 'vitest'
import { read } from './stream'

class Source {
  static all: Source[] = []
  static readonly CLOSED = 2
  readyState = 1
  onopen: () => void = () => undefined
  onerror: () => void = () => undefined
  closed = false
  private readonly on: Record<string, (e: { data: string; lastEventId: string }) => void> = {}
  constructor(readonly url: string) {
    Source.all.push(this)
  }
  addEventListener(name: string, f: (e: { data: string; lastEventId: string }) => void) {
    this.on[name] = f
  }
  send(name: string, id: string, data: unknown) {
    this.on[name]?.({ data: JSON.stringify(data), lastEventId: id })
  }
  close() {
    this.closed = true
  }
}

beforeEach(() => {
  Source.all = []
  vi.useFakeTimers()
  vi.stubGlobal('EventSource', Source)
})
afterEach(() => {
  vi.useRealTimers()
  vi.unstubAllGlobals()
})

test('a stream that was refused is opened again behind the last event, later and later', () => {
  const told: unknown[] = []
  const stop = read(
    (m) => told.push(m),
    (url) => new Source(url) as unknown as EventSource,
  )
  const first = Source.all[0]
  expect(first?.url).toBe('/api/v1/events?tail=1')
  first?.onopen()
  first?.send('event', '7', { id: 7 })
  expect(told).toEqual([{ live: true }, { gap: true }, { event: { id: 7 } }])
  if (first) first.readyState = Source.CLOSED
  first?.onerror()
  expect(told.at(-1)).toEqual({ live: false })
  vi.advanceTimersByTime(1000)
  const second = Source.all[1]
  expect(second?.url).toBe('/api/v1/events?after=7')
  if (second) second.readyState = Source.CLOSED
  second?.onerror()
  vi.advanceTimersByTime(1999)
  expect(Source.all).toHaveLength(2)
  vi.advanceTimersByTime(1)
  Source.all[2]?.onopen()
  expect(told.at(-1)).toEqual({ live: true }) // nothing was missed: the director sends what followed
  Source.all[2]?.send('gap', '90', { after: 7, through: 90 })
  expect(told.at(-1)).toEqual({ gap: true })
  stop()
  expect(Source.all[2]?.closed).toBe(true)
})

test('a director that was away for long is heard within 5 seconds', () => {
  const stop = read(
    () => undefined,
    (url) => new Source(url) as unknown as EventSource,
  )
  const refuse = () => {
    const last = Source.all.at(-1)
    if (last) last.readyState = Source.CLOSED
    last?.onerror()
  }
  refuse()
  for (let i = 0; i < 20; i++) {
    const before = Source.all.length
    vi.advanceTimersByTime(4999)
    expect(Source.all.length).toBeGreaterThan(before)
    refuse()
  }
  stop()
})
