import { expect, test } from 'vitest'
import { compare, folded } from './compare'

const short = (left: string, right: string) =>
  compare(left, right).map((r) => `${r.left ?? ''}|${r.right ?? ''}${r.changed ? ' *' : ''}`)

test.each([
  ['the same', 'a\nb\n', 'a\nb\n', ['a|a', 'b|b']],
  ['a line that was changed', 'a\nb\nc\n', 'a\nx\nc\n', ['a|a', 'b|x *', 'c|c']],
  ['a line more', 'a\nc\n', 'a\nb\nc\n', ['a|a', '|b *', 'c|c']],
  ['a line less', 'a\nb\nc\n', 'a\nc\n', ['a|a', 'b| *', 'c|c']],
  ['a line that moved', 'a\nb\nc\n', 'b\nc\na\n', ['a| *', 'b|b', 'c|c', '|a *']],
  ['without a line break at the end', 'a', 'a\n', ['a|a']],
  ['nothing in common', 'a\nb', 'x', ['a|x *', 'b| *']],
])('compare: %s', (_, left, right, want) => expect(short(left, right)).toEqual(want))

test('compare: both sides are whole, whatever they are', () => {
  const text = (seed: number) => Array.from({ length: 60 }, (_, i) => `l${(i * seed) % 7}`).join('\n')
  for (let seed = 1; seed < 12; seed++) {
    const rows = compare(text(seed), text(seed + 3))
    const side = (of: 'left' | 'right') =>
      rows
        .map((r) => r[of])
        .filter((l) => l !== undefined)
        .join('\n')
    expect(side('left')).toBe(text(seed))
    expect(side('right')).toBe(text(seed + 3))
    expect(rows.every((r) => r.changed || r.left === r.right)).toBe(true)
  }
})

test('compare: a large text is shown at once', () => {
  const many = (word: string) => Array.from({ length: 5000 }, (_, i) => `${word} ${i}`).join('\n')
  expect(compare(many('a'), many('b'))).toHaveLength(5000)
})

test('folded leaves out what is far from a change', () => {
  const left = Array.from({ length: 20 }, (_, i) => `l${i}`).join('\n')
  const rows = folded(compare(left, left.replace('l10', 'x')), 2)
  expect(rows.map((r) => (typeof r === 'number' ? r : r.left))).toEqual([8, 'l8', 'l9', 'l10', 'l11', 'l12', 7])
  expect(folded(compare(left, left))).toEqual([20])
})
