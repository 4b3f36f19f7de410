import { afterEach, expect, test } from 'vitest'
import { difference, hear, now } from './clock'

const at = Date.parse('2030-01-01T00:00:00Z')
const said = new Date(at).toUTCString()

afterEach(() => hear(new Date().toUTCString(), Date.now(), Date.now()))

test('clocks that may be the same are the same', () => {
  for (const [asked, answered] of [
    [at, at],
    [at + 900, at + 950], // the director cuts fractions off
    [at - 20_000, at + 1000], // it took its time
    [at + 5000, at + 5000],
  ] as const)
    expect(difference(said, asked, answered)).toBe(0)
  expect(difference(null, at, at)).toBe(0)
  expect(difference('yesterday', at, at)).toBe(0)
})

test('a clock that is ahead, and one that is behind', () => {
  expect(difference(said, at + 60_000, at + 61_000)).toBe(60_000)
  expect(difference(said, at - 86_400_000, at - 86_400_000)).toBe(-86_400_500)
})

test('the time is that of the director, until its clock is set right', () => {
  const day = 86_400_000
  const director = new Date(Date.now() + day)
  hear(director.toUTCString(), Date.now(), Date.now())
  expect(Math.abs(now().getTime() - director.getTime())).toBeLessThan(5000)
  hear(null, 0, 0) // an answer that says nothing changes nothing
  expect(Math.abs(now().getTime() - director.getTime())).toBeLessThan(5000)
  hear(new Date().toUTCString(), Date.now(), Date.now())
  expect(Math.abs(now().getTime() - Date.now())).toBeLessThan(1000)
})
