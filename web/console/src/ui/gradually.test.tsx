// @vitest-environment jsdom
import { act, cleanup, render, screen } from '@testing-library/react'
import { afterEach, expect, test, vi } from 'vitest'
import { Gradually, partOf } from './gradually'

afterEach(() => {
  cleanup()
  vi.useRealTimers()
})

test.each([
  ['nothing', [], [], 0],
  ['a list that is short enough', ['a', 'b'], [], 2],
  ['the first of a long list', ['a', 'b', 'c'], [], 2],
  ['what is there does not count', ['a', 'b', 'c'], ['a'], 3],
  ['what is there waits behind what is new', ['c', 'd', 'e', 'a'], ['a', 'b'], 2],
  ['another order of the same', ['c', 'b', 'a'], ['a', 'b', 'c'], 3],
])('%s', (_, names, shown, want) => expect(partOf(names, new Set(shown), 2)).toBe(want))

const numbers = (from: number, n: number) => Array.from({ length: n }, (_, i) => `row ${from + i}`)
const list = (names: string[]) => (
  <ul>
    <Gradually of={names} name={(n) => n}>
      {(n) => <li>{n}</li>}
    </Gradually>
  </ul>
)
const shown = () => screen.queryAllByRole('listitem').map((li) => li.textContent)
const frame = () => act(() => vi.advanceTimersToNextFrame())

test('a long list comes a few rows in each frame, and what is there stays', () => {
  vi.useFakeTimers()
  const page = render(list(numbers(0, 50)))
  expect(shown()).toEqual(numbers(0, 20))
  frame()
  expect(shown()).toEqual(numbers(0, 40))
  frame()
  expect(shown()).toEqual(numbers(0, 50))

  page.rerender(list(['new', ...numbers(0, 50)]))
  expect(shown()).toEqual(['new', ...numbers(0, 50)])

  page.rerender(list(numbers(100, 30)))
  expect(shown()).toEqual(numbers(100, 20))
  page.rerender(list(numbers(100, 3))) // the rest is not wanted any more
  frame()
  expect(shown()).toEqual(numbers(100, 3))
})
