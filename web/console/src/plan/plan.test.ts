import { describe, expect, test } from 'vitest'
import {
  counted,
  effectsOf,
  lossFirst,
  phaseOf,
  saidOf,
  share,
  timelineOf,
  verbsOf,
  type Effect,
  type Plan,
  type Step,
} from './plan'

function step(id: string, kind: Step['kind'], status: Step['status'], more: Partial<Step> = {}): Step {
  return {
    id,
    kind,
    status,
    title: id,
    attempt: 0,
    attempts: 3,
    failures: 0,
    estimate_seconds: 1,
    timeout_seconds: 1,
    effects: null,
    needs: null,
    ...more,
  } as Step
}

describe('effectsOf', () => {
  test('what is lost comes first, and an effect that several steps have is told once', () => {
    const effects = [
      { verb: 'create', object: 'vm', name: 'n1' },
      { verb: 'keep', object: 'disk', name: 'd' },
      { verb: 'create', object: 'vm', name: 'n1' },
      { verb: 'delete', object: 'vm', name: 'n2', detail: 'with its disk' },
      { verb: 'unheard of', object: 'vm', name: 'n3' },
      { verb: 'evict', object: 'api', name: 'p' },
    ] as Effect[]
    expect(lossFirst(effectsOf(effects))).toEqual([
      { verb: 'unheard of', object: 'vm', total: 1, names: ['n3'] },
      { verb: 'delete', object: 'vm', total: 1, names: ['n2 (with its disk)'] },
      { verb: 'evict', object: 'api', total: 1, names: ['p'] },
      { verb: 'create', object: 'vm', total: 1, names: ['n1'] },
      { verb: 'keep', object: 'disk', total: 1, names: ['d'] },
    ])
  })
})

test('phaseOf', () => expect(phaseOf('node.rotate_certs')).toBe('node rotate certs'))

test('counted', () => {
  expect([counted(1, 'vm'), counted(2, 'vm'), counted(2, 'network'), counted(1, 'a new object')]).toEqual([
    '1 VM',
    '2 VMs',
    '2 networks',
    '1 a new object',
  ])
})

test('verbsOf: a plan that destroys nothing needs no approval', () => {
  expect(verbsOf({ status: 'planned', approvals: [] })).toEqual(['start', 'discard'])
  expect(verbsOf({ status: 'planned', approvals: ['it destroys'] })).toEqual(['approve', 'start', 'discard'])
  expect(verbsOf({ status: 'done', approvals: [] })).toEqual([])
  expect(verbsOf({ status: 'a status of a later version' as string as Plan['status'], approvals: [] })).toEqual([])
})

test('saidOf: what the label of a wait says is not said again', () => {
  expect(saidOf({ reason: 'it waits to be started' })).toEqual({ label: 'waits to be started', more: '' })
  expect(saidOf({ reason: 'it waits to be approved, or started: evicts 12 pods; deletes a: b' })).toEqual({
    label: 'waits to be approved, or started',
    more: 'evicts 12 pods; deletes a: b',
  })
  expect(saidOf({ reason: 'it is failed: one line\nand another' })).toEqual({
    label: 'failed',
    more: 'one line\nand another',
  })
  expect(saidOf({ reason: 'it is cancelled: ' })).toEqual({ label: 'cancelled', more: '' })
  expect(saidOf({ reason: 'it waits for its turn: b is used up', step: 'vm/a' })).toEqual({
    more: 'it waits for its turn: b is used up',
  })
  expect(saidOf({ reason: 'a reason of a later version' })).toEqual({ more: 'a reason of a later version' })
})

test('share is whole only when all is done', () => {
  expect(share({ steps_done: 999, steps_total: 1000 })).toBe(99)
  expect(share({ steps_done: 0, steps_total: 0 })).toBe(0)
})

test('timelineOf: what has run, by its beginning', () => {
  const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, second)).toISOString()
  const steps = [
    step('later', 'ansible.play', 'running', { started_at: at(50) }),
    step('first', 'ansible.play', 'done', { started_at: at(0), finished_at: at(25) }),
    step('skewed', 'ansible.play', 'done', { started_at: at(60), finished_at: at(55) }), // a clock was set back
    step('never', 'ansible.play', 'pending'),
  ]
  const bars = timelineOf({ started_at: at(0) }, steps, new Date(at(100)))
  expect(bars.map((b) => [b.step.id, b.after, b.took, b.from, b.width])).toEqual([
    ['first', 0, 25, 0, 25],
    ['later', 50, 50, 50, 50],
    ['skewed', 60, 0, 60, 0.3],
  ])
  expect(timelineOf({}, steps, new Date())).toEqual([])
})
