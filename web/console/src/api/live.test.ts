import { QueryClient, QueryObserver } from '@tanstack/react-query'
import { expect, test, vi } from 'vitest'
import { keepFresh, touches } from './live'
import type { StreamEvent } from './stream'

let happens: (event: StreamEvent | null) => void
vi.mock('./stream', () => ({
  onEvent: (hear: typeof happens) => {
    happens = hear
    return () => {}
  },
}))

const event = (kind: string, name: string, cluster?: string): StreamEvent => ({
  id: 1,
  at: '',
  source: 'plan',
  kind,
  name,
  what: '',
  cluster,
})
const key = (path: string, named?: Record<string, string>) => ['get', path, { params: { path: named } }]

test.each([
  ['the plan itself', event('Plan', 'p1', 'c1'), key('/plans/{id}', { id: 'p1' }), true],
  ['another plan', event('Plan', 'p1', 'c1'), key('/plans/{id}', { id: 'p2' }), false],
  ['the steps of a plan', event('Plan', 'p1', 'c1'), key('/plans/{id}/steps', { id: 'p1' }), true],
  ['the steps of another plan', event('Plan', 'p1', 'c1'), key('/plans/{id}/steps', { id: 'p2' }), false],
  ['the rows of a plan', event('Plan', 'p1', 'c1'), key('/plans/{id}/matrix', { id: 'p1' }), true],
  ['the list of plans', event('Plan', 'p1', 'c1'), key('/plans'), true],
  ['the cluster of a plan', event('Plan', 'p1', 'c1'), key('/clusters/{name}', { name: 'c1' }), true],
  ['another cluster', event('Plan', 'p1', 'c1'), key('/clusters/{name}/nodes', { name: 'c2' }), false],
  ['a plan that was made', event('Cluster', 'c1', 'c1'), key('/plans'), true],
  ['a document', event('Network', 'n'), key('/documents/{kind}', { kind: 'Network' }), true],
  ['a campaign', event('Campaign', 'x'), key('/campaigns/{id}', { id: 'x' }), true],
  ['another campaign', event('Campaign', 'x'), key('/campaigns/{id}', { id: 'y' }), false],
  ['a plan of a campaign', event('Plan', 'p1', 'c1'), key('/campaigns/{id}', { id: 'x' }), true],
  ['a node', event('Node', 'n1', 'c1'), key('/nodes'), true],
  ['a node of another cluster', event('Node', 'n1', 'c1'), key('/clusters/{name}/nodes', { name: 'c2' }), false],
  ['what has nothing to do with it', event('Network', 'n'), key('/users'), false],
])('%s', (_, e, k, want) => expect(touches(e, k)).toBe(want))

test('a slow answer has only itself asked for again', async () => {
  vi.useFakeTimers()
  const queries = new QueryClient()
  let answerSlow: (answer: string) => void = () => {}
  const quick = vi.fn(() => Promise.resolve('now'))
  const slow = vi.fn(() => new Promise<string>((resolve) => (answerSlow = resolve)))
  const shown = [
    new QueryObserver(queries, { queryKey: key('/capacity', { provider: 'quick' }), queryFn: quick }),
    new QueryObserver(queries, { queryKey: key('/capacity', { provider: 'slow' }), queryFn: slow }),
  ].map((o) => o.subscribe(() => {}))
  const stop = keepFresh(queries)
  await vi.advanceTimersByTimeAsync(1000)
  for (const e of [event('Network', 'n'), null]) {
    happens(e)
    await vi.advanceTimersByTimeAsync(10_000)
  }
  expect(quick).toHaveBeenCalledTimes(3) // at first, and for each event
  expect(slow).toHaveBeenCalledTimes(1)
  answerSlow('from before the events')
  await vi.advanceTimersByTimeAsync(10_000)
  expect(slow).toHaveBeenCalledTimes(2)
  answerSlow('from now')
  await vi.advanceTimersByTimeAsync(10_000)
  expect(slow).toHaveBeenCalledTimes(2)
  expect(quick).toHaveBeenCalledTimes(3)
  stop()
  for (const end of shown) end()
  vi.useRealTimers()
})
