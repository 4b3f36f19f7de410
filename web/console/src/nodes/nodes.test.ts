// @vitest-environment jsdom
import { expect, test } from 'vitest'
import { commandOf, quorumOf, requestOf, type Node, type Work } from './nodes'

const master = (name: string, etcd = true): Node => ({ name, role: 'master', state: 'present', ready: true, etcd })
const worker = (name: string): Node => ({ name, role: 'worker', state: 'present', ready: true })

const work: Work = {
  operation: 'node.drain',
  nodes: ['w1'],
  emptydir: false,
  unmanaged: false,
  minutes: 0,
  undrained: false,
  keepVM: false,
}

test.each([
  ['no master of three', ['w1'], [true, true, true], true, 'No master is among them'],
  ['one of three', ['m1'], [true, true, true], true, 'can lose no other member'],
  ['two of three', ['m1', 'm2'], [true, true, true], false, '1 is well: etcd loses its quorum'],
  ['one of three, another is ill', ['m1'], [true, false, true], false, 'loses its quorum'],
  ['the ill one of three', ['m2'], [true, false, true], true, 'keeps its quorum'],
  ['one of five', ['m1'], [true, true, true, true, true], true, 'can lose 1 more'],
  ['the only one', ['m1'], [true], false, '0 are well'],
  ['no master, and etcd is ill', ['w1'], [true, false, false], false, 'only 1 are well'],
] as const)('quorum: %s', (_, chosen, etcd, kept, text) => {
  const nodes = [...etcd.map((e, i) => master(`m${i + 1}`, e)), worker('w1')]
  const got = quorumOf(nodes, [...chosen])
  expect(got?.kept).toBe(kept)
  expect(got?.text).toContain(text)
})

test('a member that was not asked counts if its node is ready', () => {
  expect(quorumOf([{ ...master('m1'), etcd: undefined }, worker('w')], ['w'])?.kept).toBe(true)
  expect(quorumOf([worker('w')], ['w'])).toBeUndefined()
})

test('of a cluster that was not asked, only what is sure is said', () => {
  const nodes = [1, 2, 3].map((n): Node => ({ ...master(`m${n}`), ready: false, etcd: undefined }))
  expect(quorumOf(nodes, ['w'], false)).toEqual({
    kept: true,
    text:
      'No master is among them. etcd has 3 members, and needs 2 of them. ' +
      'How many are well is not known, because the cluster was not asked.',
  })
  expect(quorumOf(nodes, ['m1'], false)).toMatchObject({ kept: false, text: expect.stringContaining('2 are left') })
  expect(quorumOf(nodes, ['m1', 'm2'], false)).toMatchObject({
    kept: false,
    text: expect.stringContaining('etcd loses its quorum'),
  })
})

test('an operation has only its own options', () => {
  const all = { ...work, emptydir: true, unmanaged: true, minutes: 5, undrained: true, keepVM: true }
  expect(requestOf(all)).toEqual({
    operation: 'node.drain',
    nodes: ['w1'],
    drain: { delete_emptydir: true, unmanaged: true, timeout_seconds: 300 },
  })
  expect(requestOf({ ...all, operation: 'node.cordon' })).toEqual({ operation: 'node.cordon', nodes: ['w1'] })
  expect(requestOf({ ...all, operation: 'node.delete' })).toMatchObject({ undrained: true, keep_vm: true })
  expect(commandOf('c', { ...all, operation: 'node.delete' })).toBe(
    'directorctl node delete c w1 --delete-emptydir-data --unmanaged --drain-timeout 5m --undrained --keep-vm',
  )
  expect(commandOf('c', work)).toBe('directorctl node drain c w1')
})
