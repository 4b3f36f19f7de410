import { expect, test } from 'vitest'
import { countsText, messageOf, targetText, verbsOf } from './campaignText'

test('what is ill is told first', () => {
  expect(countsText({ done: 18, failed: 1, nothing: 2, running: 0 })).toBe('1 failed, 18 done, 2 with nothing to do')
})

test('targets', () => {
  expect(targetText({ release: 'k8s', image: 'node' })).toBe('Release/k8s with Image/node')
  expect(targetText({ operation: 'cluster.rotate_pull_password' })).toBe('cluster.rotate_pull_password')
  expect(targetText({ patch: { maintenance: { window: 2 } } })).toBe('patch {"maintenance":{"window":2}}')
})

const wave = (counts: Record<string, number>, hash?: string) => ({
  number: 1,
  clusters: 1,
  counts,
  hash,
  current: true,
  over: false,
})

test.each([
  ['a wave waits', 'waiting', wave({ planned: 1 }, 'h'), ['agree', 'pause', 'end']],
  ['its plans are made again', 'planning', wave({ planned: 1 }, 'h'), ['pause', 'end']],
  ['the wave is agreed to', 'running', wave({ running: 1 }, 'h'), ['pause', 'end']],
  ['it has stopped itself', 'paused', wave({ failed: 1, planned: 1 }, 'h'), ['agree', 'resume', 'end']],
  ['it has ended', 'ended', wave({ planned: 1 }, 'h'), []],
] as const)('verbs: %s', (_, status, w, want) => expect(verbsOf({ status, wave: 1, waves: [w] })).toEqual(want))

test('before there are waves, there is nothing to agree to', () => {
  expect(verbsOf({ status: 'planning', wave: 0, waves: [] })).toEqual(['pause', 'end'])
})

test('why a cluster has no plan, with the path', () => {
  const m = { name: 'c', wave: 0, state: 'refused', message: 'too far', path: ['v1.38.0'] } as const
  expect(messageOf({ ...m, path: [...m.path] })).toBe('too far; path: v1.38.0')
})
