import { expect, test } from 'vitest'
import { acts, edits, sees, type Me } from './me'

const me = (role: Me['role'], more: Partial<Me> = {}): Me => ({
  user: 'ann',
  role,
  kind: 'browser',
  scope: 'all',
  must_change_password: false,
  expires_at: '',
  grants: [],
  can: [],
  ...more,
})

test('what a role is offered', () => {
  const offered = Object.fromEntries(
    (['admin', 'operator', 'auditor', 'user', 'none'] as const).map((r) => [
      r,
      [sees(me(r), 'activity'), sees(me(r), 'infrastructure'), acts(me(r)), edits(me(r))],
    ]),
  )
  expect(offered).toEqual({
    admin: [true, true, true, true],
    operator: [false, true, true, false],
    auditor: [true, true, false, false],
    user: [false, true, false, false],
    none: [false, false, false, false],
  })
})

test('a grant is for its cluster or its project', () => {
  const one = me('none', {
    grants: [
      { role: 'operator', project: 'web' },
      { role: 'user', cluster: 'db' },
    ],
  })
  expect(acts(one)).toBe(true)
  expect(acts(one, { name: 'shop', project: 'web' })).toBe(true)
  expect(acts(one, { name: 'db' })).toBe(false)
  expect(acts(one, { name: 'other', project: '' })).toBe(false)
  expect(edits(one)).toBe(false)
})

test('a token that only reads changes nothing', () => {
  expect(acts(me('admin', { scope: 'read' }))).toBe(false)
  expect(edits(me('admin', { scope: 'read' }))).toBe(false)
})
