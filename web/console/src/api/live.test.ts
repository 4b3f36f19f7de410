import { expect, test } from 'vitest'
import { touches } from './live'
import type { StreamEvent } from './stream'

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
