import { afterEach, expect, test, vi } from 'vitest'
import {
  addressOf,
  dropDraft,
  expired,
  lifetime,
  listDrafts,
  readDraft,
  secretive,
  writeDraft,
  type Draft,
} from './drafts'

// jsdom has no IndexedDB, as a browser that stores nothing. e2e/drafts.spec.ts has the real one.
afterEach(() => vi.restoreAllMocks())

const draft = (key: string, text: string): Draft => ({ key, user: 'ann', text, revision: '1', at: Date.now() })

test('a browser that stores nothing keeps drafts while the page is open, and says so', async () => {
  expect(await writeDraft({ ...draft('Network/n', 'a'), etag: '"3"' }, undefined)).toEqual({ kept: 'blocked' })
  expect(await readDraft('ann', 'Network/n')).toMatchObject({ text: 'a', etag: '"3"' })
  expect(await readDraft('ann', 'Network/other')).toBeUndefined()
  expect(await readDraft('bob', 'Network/n')).toBeUndefined()
  expect(await listDrafts('ann')).toMatchObject({ drafts: [{ key: 'Network/n' }], stores: false })
  await dropDraft('ann', 'Network/n')
  expect(await readDraft('ann', 'Network/n')).toBeUndefined()
})

test('what seems to be a secret is never stored', async () => {
  for (const text of [
    '-----BEGIN OPENSSH PRIVATE KEY-----\nabc',
    'uri: qemu+ssh://root:hunter2@host/system',
    'password: hunter2',
    '  - token: "abc"',
    'clientSecret: x',
  ]) {
    expect(secretive(text), text).toBe(true)
    expect(await writeDraft(draft('s', text), undefined)).toEqual({ kept: 'secret' })
  }
  for (const text of [
    'uri: qemu+ssh://root@host/system?keyfile=/etc/director/providers/KEY',
    'credentials: vcenter',
    'passwordFile: /etc/director/providers/pw',
    '# the password is kept apart',
    'password:',
    'url: https://vcenter.example.org:443/sdk',
    'address: http://[fd00::1]:80/@x',
  ]) {
    expect(secretive(text), text).toBe(false)
  }
})

test('a draft expires, also one from a clock that was wrong', () => {
  const now = Date.now()
  expect(expired({ at: now }, now)).toBe(false)
  expect(expired({ at: now - lifetime - 1 }, now)).toBe(true)
  expect(expired({ at: now + 2 * 86_400_000 }, now)).toBe(true)
})

test('a draft leads to its page', () => {
  expect(addressOf('new cluster')).toBe('/clusters/new')
  expect(addressOf('Network/net1')).toBe('/apply?kind=Network&name=net1')
  expect(addressOf('new/Network')).toBe('/apply?template=Network')
  expect(addressOf('new/')).toBe('/apply')
  expect(addressOf('new/Image/ab12/v1.37.0')).toBe('/apply?template=Image&sha256=ab12&kubernetes=v1.37.0')
})
