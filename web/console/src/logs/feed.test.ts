// @vitest-environment jsdom
import { expect, test } from 'vitest'
import type { Schemas } from '../api/client'
import { extended, holds, windowOf, windowSize } from './feed'
import { countOf } from './view'

const output = (n: number) => ({ line: n, record: { type: 'output', msg: `line ${n}` } })

function answer(from: number, through: number, total = through, growing = false): Schemas['LogLines'] {
  const items = Array.from({ length: through - from + 1 }, (_, i) => output(from + i))
  return { items, attempt: 1, total, next: through + 1, growing } as Schemas['LogLines']
}

test('a line that says nothing keeps its number', () => {
  const all = answer(7, 9)
  all.items[1] = { line: 8, record: { type: 'stats' } } as Schemas['LogLine']
  const w = windowOf(all)
  expect(w.lines.map((l) => l.n)).toEqual([7, 9])
  expect(w).toMatchObject({ first: 7, next: 10, total: 9, growing: false })
})

test('the window of a log that has written nothing is empty', () => {
  expect(windowOf(answer(1, 0))).toMatchObject({ lines: [], first: 1, next: 1, total: 0 })
})

test('a window that follows the end keeps the newest lines', () => {
  let w = windowOf(answer(1, windowSize, windowSize, true))
  w = extended(w, windowOf(answer(windowSize + 1, windowSize + 30, windowSize + 30, true)))
  expect(w).toMatchObject({ first: 31, next: windowSize + 31, total: windowSize + 30, growing: true })
  expect(w.lines).toHaveLength(windowSize)
  expect(w.lines[0]?.n).toBe(31)
  const ended = extended(w, windowOf({ ...answer(1, 0), next: w.next, total: w.total }))
  expect(ended).toEqual({ ...w, growing: false })
})

test('a window knows its lines', () => {
  const w = windowOf(answer(10, 20))
  expect([9, 10, 20, 21].map((n) => holds(w, n))).toEqual([false, true, true, false])
})

test('hits are counted as far as they are known', () => {
  const hits = { lines: [3, 5], busy: false, more: false }
  expect(countOf(hits, 0)).toBe('1 / 2')
  expect(countOf({ ...hits, more: true }, 1)).toBe('2 / 2+')
  expect(countOf({ lines: [], busy: true, more: false }, 0)).toBe('...')
  expect(countOf({ lines: [], busy: false, more: false }, 0)).toBe('0')
})
