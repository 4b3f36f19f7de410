// The director has the lines of a log, a million of them if need be; the page holds a window of them.
import { useEffect, useState } from 'react'
import { client, json, type Schemas } from '../api/client'
import { lineOf, type Line } from './line'

export const windowSize = 500
const mostFailures = 100
const mostHits = 1000 // of one search, until more are asked for

// Source names the log of one attempt of a step.
export interface Source {
  plan: string
  step: string
  attempt: number
}

// Place is the line around which a window lies, or the end of the log as it grows.
export type Place = number | 'end'

export interface LogWindow {
  lines: Line[]
  first: number // the number of the first line, also where that one says nothing
  next: number // the number behind the last line
  total: number // lines that the log had
  growing: boolean
}

// windowOf renders what the director answered.
export function windowOf(answer: Schemas['LogLines']): LogWindow {
  const lines: Line[] = []
  for (const { line: n, record } of answer.items) {
    const line = lineOf(record)
    if (line) lines.push({ ...line, n })
  }
  const first = answer.items[0]?.line ?? answer.next
  return { lines, first, next: answer.next, total: answer.total, growing: answer.growing }
}

// extended is the window with the lines that follow it. It keeps the newest ones.
export function extended(before: LogWindow, more: LogWindow): LogWindow {
  const first = Math.max(before.first, more.next - windowSize)
  const lines = [...before.lines, ...more.lines].filter((l) => l.n >= first)
  return { ...more, lines, first }
}

export const holds = (w: LogWindow, n: number) => n >= w.first && n < w.next

async function read(of: Source, from: { from: number } | { tail: number }, signal: AbortSignal): Promise<LogWindow> {
  const { data, error } = await client.GET('/plans/{id}/log/lines', {
    params: { path: { id: of.plan }, query: { step: of.step, attempt: of.attempt, limit: windowSize, ...from } },
    headers: { Accept: 'application/json' },
    signal,
  })
  if (data === undefined) throw error
  return windowOf(json(data))
}

async function search(
  of: Source,
  what: { q?: string; failed?: boolean; from: number; limit: number },
  signal: AbortSignal,
): Promise<{ lines: number[]; next?: number; total: number }> {
  const { data, error } = await client.GET('/plans/{id}/log/search', {
    params: { path: { id: of.plan }, query: { step: of.step, attempt: of.attempt, ...what } },
    signal,
  })
  if (data === undefined) throw error
  return { lines: data.items.map((hit) => hit.line), next: data.next, total: data.total }
}

// repeat calls act until its answer is undefined, so many milliseconds after the last time, and again after an error.
// It returns what ends it.
function repeat(act: (signal: AbortSignal) => Promise<number | undefined>, failed: (problem: unknown) => void) {
  const abort = new AbortController()
  let timer: ReturnType<typeof setTimeout> | undefined
  const run = async () => {
    let pause: number | undefined
    try {
      pause = await act(abort.signal)
    } catch (problem) {
      if (abort.signal.aborted) return
      failed(problem)
      pause = 5000
    }
    if (pause !== undefined && !abort.signal.aborted) timer = setTimeout(() => void run(), pause)
  }
  void run()
  return () => {
    abort.abort()
    clearTimeout(timer)
  }
}

// useWindow reads the window at the place; without a place it waits. A window at the end follows a log that grows.
export function useWindow(of: Source, place: Place | undefined): { window?: LogWindow; problem?: unknown } {
  const { plan, step, attempt } = of
  const [state, setState] = useState<{ window?: LogWindow; problem?: unknown }>({})
  useEffect(() => {
    if (place === undefined) return
    const source = { plan, step, attempt }
    let shown: LogWindow | undefined
    return repeat(
      async (signal) => {
        const begin = place === 'end' ? { tail: windowSize } : { from: Math.max(1, place - windowSize / 2) }
        const more = await read(source, shown ? { from: shown.next } : begin, signal)
        shown = shown ? extended(shown, more) : more
        const window = shown
        if (!signal.aborted) setState({ window })
        if (place !== 'end') return undefined
        if (window.next <= window.total) return 0
        return window.growing ? 1000 : undefined
      },
      (problem) => setState((before) => ({ ...before, problem })),
    )
  }, [plan, step, attempt, place])
  return state
}

export interface Failures {
  lines: number[]
  known: boolean // the log was looked through
}

// useFailures looks for the lines that failed, the first hundred of them.
export function useFailures(of: Source, grows: boolean): Failures {
  const { plan, step, attempt } = of
  const [found, setFound] = useState<Failures>({ lines: [], known: false })
  useEffect(() => {
    const source = { plan, step, attempt }
    let lines: number[] = []
    let from = 1
    return repeat(
      async (signal) => {
        const hits = await search(source, { failed: true, from, limit: mostFailures - lines.length }, signal)
        lines = [...lines, ...hits.lines]
        from = hits.next ?? hits.total + 1
        const ends = hits.next === undefined || lines.length >= mostFailures
        if (!signal.aborted && (ends || hits.lines.length > 0)) setFound({ lines, known: ends })
        if (lines.length >= mostFailures) return undefined
        return ends ? (grows ? 2000 : undefined) : 0
      },
      () => setFound((before) => ({ ...before, known: true })), // the log is shown all the same
    )
  }, [plan, step, attempt, grows])
  return found
}

export interface Hits {
  lines: number[]
  busy: boolean
  more: boolean // there may be further ones
  problem?: unknown
}

const none: Hits = { lines: [], busy: false, more: false }

// useSearch looks for the text in the whole log, a moment after it was typed. extend looks for more hits than are
// known.
export function useSearch(of: Source, text: string): Hits & { extend: () => void } {
  const { plan, step, attempt } = of
  const [most, setMost] = useState(mostHits)
  const [hits, setHits] = useState(none)
  useEffect(() => setMost(mostHits), [text])
  useEffect(() => {
    setHits((before) => (text === '' ? none : { ...before, busy: true }))
    if (text === '') return
    const source = { plan, step, attempt }
    let lines: number[] = []
    let from = 1
    let end: (() => void) | undefined
    const timer = setTimeout(() => {
      end = repeat(
        async (signal) => {
          const found = await search(source, { q: text, from, limit: Math.min(mostHits, most - lines.length) }, signal)
          lines = [...lines, ...found.lines]
          from = found.next ?? found.total + 1
          const busy = found.next !== undefined && lines.length < most
          if (!signal.aborted) setHits({ lines, busy, more: found.next !== undefined })
          return busy ? 0 : undefined
        },
        (problem) => setHits((before) => ({ ...before, busy: false, problem })),
      )
    }, 200)
    return () => {
      clearTimeout(timer)
      end?.()
    }
  }, [plan, step, attempt, text, most])
  return { ...hits, extend: () => setMost((m) => Math.max(m, hits.lines.length) + mostHits) }
}
