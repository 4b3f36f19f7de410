import { afterEach, expect, test, vi } from 'vitest'
import { readDraft, writeDraft } from './draft'

afterEach(() => {
  vi.restoreAllMocks()
  localStorage.clear()
})

test('a draft keeps the version that it began with', () => {
  writeDraft('Network/n', { text: 'a', etag: '"3"' })
  expect(readDraft('Network/n')).toEqual({ text: 'a', etag: '"3"' })
  expect(readDraft('Network/other')).toBeUndefined()
  writeDraft('Network/n', undefined)
  expect(readDraft('Network/n')).toBeUndefined()
})

test('a browser that stores nothing keeps drafts while the page is open', () => {
  vi.spyOn(Storage.prototype, 'setItem').mockImplementation(() => {
    throw new DOMException('no', 'SecurityError')
  })
  vi.spyOn(Storage.prototype, 'getItem').mockImplementation(() => {
    throw new DOMException('no', 'SecurityError')
  })
  writeDraft('k', { text: 'b' })
  expect(readDraft('k')).toEqual({ text: 'b', etag: undefined })
})

test('what another version of the console has stored is no draft', () => {
  localStorage.setItem('director.draft.k2', 'kind: Network')
  expect(readDraft('k2')).toBeUndefined()
  localStorage.setItem('director.draft.k2', '{"text":1}')
  expect(readDraft('k2')).toBeUndefined()
})
