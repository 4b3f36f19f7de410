import { expect, test } from 'vitest'
import { day, endOf } from './certificateEnd'

test.each([
  ['apiserver', 365, -1, 'ended'],
  ['apiserver', 365, 1, 'ends soon'],
  ['apiserver', 365, 29, 'ends soon'],
  ['apiserver', 365, 31, 'good'],
  ['director-acme', 1, 0.3, 'good'],
  ['director-acme', 1, 0.2, 'ends soon'],
  ['director-acme', 90, 29, 'good'],
])('%s with a life of %d days that ends in %d days is: %s', (name, life, days, word) => {
  const now = new Date('2026-01-01T00:00:00Z')
  const at = (left: number) => new Date(now.getTime() + left * day).toISOString()
  expect(endOf({ name, begins_at: at(days - life), ends_at: at(days) }, now).word).toBe(word)
})
