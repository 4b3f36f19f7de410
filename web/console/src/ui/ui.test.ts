// @vitest-environment jsdom
import { expect, test } from 'vitest'
import { marksOf } from '../forms/places'
import { quoted } from './command'
import { size } from './size'
import { ago, duration } from './time'

test.each([
  [0, '0 s'],
  [59.6, '1 min'],
  [90, '1 min 30 s'],
  [3600, '1 h'],
  [3661, '1 h 1 min'],
  [90061, '1 d 1 h'],
  [86400 + 59, '1 d'],
])('duration(%d) is %s', (seconds, want) => expect(duration(seconds)).toBe(want))

test('ago looks both ways', () => {
  const now = new Date('2026-01-02T00:00:00Z')
  expect(ago(new Date('2026-01-01T23:58:00Z'), now)).toBe('2 min ago')
  expect(ago(new Date('2026-01-03T02:00:00Z'), now)).toBe('in 1 d')
  expect(ago(new Date('2026-01-02T00:00:02Z'), now)).toBe('now')
})

test('size is as documents write it', () => {
  expect(size(0)).toBe('0 B')
  expect(size(4 * 2 ** 30)).toBe('4 GiB')
  expect(size(1.5 * 2 ** 40)).toBe('1.5 TiB')
})

test('quoted is one argument of a shell', () => {
  expect(quoted('workers/demo-1')).toBe('workers/demo-1')
  expect(quoted(`it's; rm -rf /`)).toBe(`'it'\\''s; rm -rf /'`)
  expect(quoted('')).toBe(`''`)
})

test('places have a line where the director names one, or the text has it', () => {
  const text = `kind: Cluster
metadata: {name: other}
---
kind: Cluster
metadata: {name: demo}
spec:
  workers:
    - name: a
      count: 1
`
  const line = (pointer: string) =>
    marksOf([{ field: 'f', message: 'm', document: 'Cluster/demo', pointer }], text)[0]?.line
  expect(line('/spec/workers/0/count')).toBe(9)
  expect(line('/spec/workers/0/memory')).toBe(8) // what it would be in
  expect(line('/metadata/name')).toBe(5)
  expect(marksOf([{ field: 'f', message: 'm', document: 'Network/n', pointer: '/spec' }], text)[0]?.line).toBe(0)
  expect(
    marksOf(
      [
        {
          field: 'text:11: spec.masters.memory',
          message: 'm',
          hint: 'h',
          document: 'Cluster/demo',
          pointer: '/spec/masters/memory',
        },
        { field: 'Cluster/demo: spec.api.vip', message: 'm' },
      ],
      text,
    ),
  ).toEqual([
    {
      line: 11,
      field: 'spec.masters.memory',
      message: 'm',
      hint: 'h',
      document: 'Cluster/demo',
      pointer: '/spec/masters/memory',
    },
    { line: 0, field: 'Cluster/demo: spec.api.vip', message: 'm', hint: '', document: '', pointer: '' },
  ])
})
