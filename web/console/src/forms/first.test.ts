import { expect, test } from 'vitest'
import { autoSize, fields, poolFields, workersOf } from './fields'
import {
  beginning,
  describe,
  providerType,
  referred,
  rename,
  takeBundle,
  takeImage,
  useKnown,
  type Known,
} from './first'
import { add, broken, get, partsOf, set } from './tree'

const nothing: Known = { Provider: [], Network: [], Image: [], Release: [] }

test('an empty director gets all documents', () => {
  const text = beginning(nothing)
  expect(partsOf(text).map((p) => p.kind)).toEqual(['Provider', 'Network', 'Image', 'Release', 'Cluster'])
  expect(broken(text)).toBeUndefined()
  for (const part of partsOf(text)) {
    for (const f of fields[part.kind as 'Cluster'] ?? []) {
      const changed = set(text, part.kind, f.path, f.type === 'number' ? 9 : 'x9')
      if (!f.when || f.when(text, part.kind as 'Cluster')) {
        expect(get(changed, part.kind, f.path), `${part.kind} ${f.label}`).toBe(f.type === 'number' ? 9 : 'x9')
      }
    }
  }
})

test('what is there is named, and not described', () => {
  const text = beginning({ ...nothing, Provider: ['vc'], Network: ['blue', 'red'] })
  expect(partsOf(text).map((p) => p.kind)).toEqual(['Image', 'Release', 'Cluster'])
  expect(referred(text, 'Provider')).toBe('vc')
  expect(referred(text, 'Network')).toBe('blue')
  const own = describe(text, 'Network')
  expect(partsOf(own).map((p) => p.kind)).toEqual(['Network', 'Image', 'Release', 'Cluster'])
  expect(referred(own, 'Network')).toBe('net1')
  expect(get(own, 'Network', ['spec', 'provider'])).toBe('vc')
  expect(useKnown(own, 'Network', 'blue')).toBe(text)
})

test('a name is changed where it is named too', () => {
  const text = rename(beginning(nothing), 'Provider', 'rack-7')
  expect(get(text, 'Provider', ['metadata', 'name'])).toBe('rack-7')
  expect(get(text, 'Network', ['spec', 'provider'])).toBe('rack-7')
  expect(referred(text, 'Provider')).toBe('rack-7')
})

test('another type of provider keeps the name', () => {
  const text = providerType(rename(beginning(nothing), 'Provider', 'rack-7'), 'vsphere')
  expect(get(text, 'Provider', ['metadata', 'name'])).toBe('rack-7')
  expect(get(text, 'Provider', ['spec', 'vsphere', 'datacenter'])).toBeDefined()
  expect(partsOf(text)).toHaveLength(5)
  const back = providerType(text, 'libvirt')
  expect(get(back, 'Provider', ['spec', 'libvirt', 'hosts', 0, 'uri'])).toBe('qemu:///system')
})

test('what was imported is taken instead of a file of the director', () => {
  const sum = 'ab'.repeat(32)
  const image = takeImage(beginning(nothing), { sha256: sum, kubernetes: 'v1.37.2' })
  expect(['sha256', 'source', 'kubernetes'].map((k) => get(image, 'Image', ['spec', k]))).toEqual([
    sum,
    undefined,
    'v1.37.2',
  ])
  expect(get(takeImage(image, { sha256: sum }), 'Image', ['spec', 'kubernetes'])).toBe('v1.37.2')

  const of = (text: string) =>
    ['digest', 'bundle', 'kubernetes', 'unsigned'].map((k) => get(text, 'Release', ['spec', k]))
  const here = set(beginning(nothing), 'Release', ['spec', 'bundle'], '/srv/k8s')
  const bundle = takeBundle(here, { digest: sum, kubernetes: 'v1.37.2', unsigned: 'it is: a test' })
  expect(of(bundle)).toEqual([sum, undefined, 'v1.37.2', 'it is: a test'])
  expect(of(takeBundle(bundle, { digest: sum, kubernetes: 'v1.37.2' }))).toEqual([sum, undefined, 'v1.37.2', undefined])
  expect(broken(bundle)).toBeUndefined()
})

test.each([
  [0, 2, 7.5],
  [10, 2, 7.5],
  [11, 4, 15],
  [250, 8, 30],
  [500, 16, 60],
  [501, 32, 120],
])('masters of %d workers have %d CPUs and %d GB', (workers, cpus, memoryGB) => {
  expect(autoSize(workers)).toEqual({ cpus, memoryGB })
})

test('pools are counted', () => {
  const text = beginning(nothing)
  expect(workersOf(text)).toBe(3)
  const more = add(text, 'Cluster', ['spec', 'workers'], { name: 'b', count: 4 })
  expect(workersOf(more)).toBe(7)
  expect(get(more, 'Cluster', poolFields(1)[0]?.path ?? [])).toBe('b')
})
