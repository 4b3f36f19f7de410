import { expect, test } from 'vitest'
import { day, endOf } from './certificateEnd'

test.each([
  [-1, 'ended'],
  [1, 'ends soon'],
  [29, 'ends soon'],
  [31, 'good'],
])('a certificate that ends in %d days is: %s', (days, word) => {
  const now = new Date('2026-01-01T00:00:00Z')
  expect(endOf(new Date(now.getTime() + days * day).toISOString(), now).word).toBe(word)
})
