import { expect, test } from 'vitest'
import { about, addressOf, choices, has, type Found } from './found'

const items: Found[] = [
  {
    kind: 'storage_pool',
    in: 'h1',
    name: 'default',
    size_bytes: 100 * 2 ** 30,
    free_bytes: 40 * 2 ** 30,
    about: 'dir',
  },
  {
    kind: 'storage_pool',
    in: 'h2',
    name: 'default',
    size_bytes: 100 * 2 ** 30,
    free_bytes: 10 * 2 ** 30,
    about: 'dir',
  },
  { kind: 'storage_pool', in: 'h2', name: 'fast', about: 'zfs', problem: 'it is not started' },
  { kind: 'datacenter', name: '/DC1' },
  { kind: 'datacenter', name: '/DC2' },
  { kind: 'datastore', in: '/DC1', name: '/DC1/datastore/a' },
  { kind: 'datastore', in: '/DC2', name: '/DC2/datastore/b' },
]

test('a name is offered once, with what helps to choose', () => {
  expect(choices(items, 'storage_pool')).toEqual([
    ['default', 'default – on h1, h2'],
    ['fast', 'fast – zfs, it is not started; on h2'],
  ])
  expect(choices(items, 'storage_pool', 'h1')).toEqual([['default', 'default – 40 GiB of 100 GiB free, dir']])
  expect(choices(items, 'bridge')).toEqual([])
})

test('a datacenter narrows by its name or its path, and one that is not there narrows nothing', () => {
  for (const dc of ['/DC2', 'DC2'])
    expect(choices(items, 'datastore', dc).map(([n]) => n)).toEqual(['/DC2/datastore/b'])
  expect(choices(items, 'datastore', 'typo')).toHaveLength(2)
})

test('a document may have a name or a path', () => {
  const stores = choices(items, 'datastore')
  expect(has(stores, 'b')).toBe(true)
  expect(has(stores, '/DC2/datastore/b')).toBe(true)
  expect(has(stores, 'c')).toBe(false)
})

test('a host says what it has left', () => {
  const host: Found = { kind: 'host', name: 'h', cpus: 8, memory_bytes: 2 ** 35, memory_free_bytes: 2 ** 34, vms: 3 }
  expect(about(host)).toBe('8 CPUs, 16 GiB of 32 GiB memory free, 3 VMs')
})

test('the address of a provider changes with what it is asked by, and not with what is chosen', () => {
  const text = (host: string, pool: string) =>
    `kind: Provider\nmetadata: {name: a}\nspec:\n  type: libvirt\n  libvirt:\n    hosts:\n` +
    `      - {name: h1, uri: "qemu+ssh://${host}/system", pool: ${pool}}\n`
  expect(addressOf(text('one', 'default'))).toBe(addressOf(text('one', 'fast')))
  expect(addressOf(text('one', 'default'))).not.toBe(addressOf(text('two', 'default')))
  const center = (rest: string) => `kind: Provider\nspec: {type: vsphere, vsphere: {url: vc, ${rest}}}\n`
  expect(addressOf(center('cluster: a'))).toBe(addressOf(center('cluster: b')))
  expect(addressOf(center('credentials: a'))).not.toBe(addressOf(center('credentials: b')))
  expect(addressOf('not: [a document')).toBe(addressOf(''))
})
