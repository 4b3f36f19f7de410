import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { isMap, isScalar, isSeq, type Node } from 'yaml'
import { add, append, broken, drop, get, partsOf, remove, set, type Path, type Value } from './tree'
import { templates } from './templates'

const root = join(import.meta.dirname, '../../../..')
const examples: [string, string][] = [
  ...readdirSync(join(root, 'docs/examples'), { recursive: true, encoding: 'utf8' })
    .filter((f) => /\.ya?ml(\.in)?$/.test(f))
    .map((f): [string, string] => [f, readFileSync(join(root, 'docs/examples', f), 'utf8')]),
  ...Object.entries(templates),
]

// scalars are the paths of all that a form could change in a node.
function scalars(node: Node | null | undefined, path: Path = []): [Path, Value][] {
  if (isMap(node))
    return node.items.flatMap((i) => scalars(i.value as Node, [...path, (i.key as { value: string }).value]))
  if (isSeq(node)) return node.items.flatMap((i, n) => scalars(i as Node, [...path, n]))
  if (!isScalar(node) || node.value === null) return []
  return [[path, node.value as Value]]
}

test('there are examples', () => expect(examples.length).toBeGreaterThan(10))

test.each(examples)('YAML to form to YAML keeps the bytes: %s', { timeout: 60_000 }, (_, text) => {
  const seen = new Set<string>()
  for (const { kind, document } of partsOf(text)) {
    if (kind === '' || seen.has(kind)) continue // a form edits the first document of a kind
    seen.add(kind)
    for (const [path, value] of scalars(document.contents)) {
      expect(get(text, kind, path)).toEqual(value)
      expect(set(text, kind, path, value)).toBe(text)
      if (path[0] === 'kind') continue
      const other = typeof value === 'number' ? value + 1 : typeof value === 'boolean' ? !value : `${value}x: #"'`
      const changed = set(text, kind, path, other)
      expect(get(changed, kind, path)).toEqual(other)
      expect(broken(changed)).toBeUndefined()
      expect(without(changed, kind, path)).toEqual(without(text, kind, path))
      const back = set(changed, kind, path, value)
      expect(get(back, kind, path)).toEqual(value)
      if (typeof value !== 'string' || set(back, kind, path, value) !== back) expect(back).toBe(text)
      else expect(back.replaceAll(/["']/g, '')).toBe(text.replaceAll(/["']/g, ''))
    }
    const added = set(text, kind, ['spec', 'inAForm', 'alone'], 7)
    expect(get(added, kind, ['spec', 'inAForm', 'alone'])).toBe(7)
    expect(set(added, kind, ['spec', 'inAForm', 'alone'], undefined)).toBe(text)
  }
})

// without is what the other documents and fields are.
function without(text: string, kind: string, path: Path): unknown {
  let first = true
  return partsOf(text).map((p) => {
    if (p.kind === kind && first) {
      first = false
      p.document.setIn(path, null)
    }
    return p.document.toJS() as unknown
  })
}

const cluster = `# a comment
kind: Cluster
metadata: {name: demo}
spec:
  masters:
    count: 1     # 3 outlive a host
  workers:
    - name: a
      count: 3
    - name: b   # the second
      count: 1
  note:
`

test('a key is added where its map ends, and behind a comment', () => {
  expect(set(cluster, 'Cluster', ['spec', 'masters', 'size'], 'auto')).toBe(
    cluster.replace('a host\n', 'a host\n    size: auto\n'),
  )
  expect(set(cluster, 'Cluster', ['metadata', 'labels', 'env'], 'prod')).toBe(
    cluster.replace('{name: demo}', '{name: demo, labels: {env: prod}}'),
  )
  expect(set(cluster, 'Cluster', ['spec', 'note', 'of'], 'x')).toBe(cluster + '    of: x\n')
})

test('items come and go', () => {
  const more = add(cluster, 'Cluster', ['spec', 'workers'], { name: 'c', count: 2 })
  expect(more).toBe(cluster.replace('  note:', '    - name: c\n      count: 2\n  note:'))
  expect(drop(more, 'Cluster', ['spec', 'workers', 2])).toBe(cluster)
  expect(get(drop(cluster, 'Cluster', ['spec', 'workers', 0]), 'Cluster', ['spec', 'workers', 0, 'name'])).toBe('b')
  const fresh = add('kind: Cluster\nspec:\n  a: 1\n', 'Cluster', ['spec', 'workers'], { name: 'w' })
  expect(fresh).toBe('kind: Cluster\nspec:\n  a: 1\n  workers:\n    - name: w\n')
  const flow = 'kind: Cluster\nspec: {workers: [{name: a}]}\n'
  const two = add(flow, 'Cluster', ['spec', 'workers'], { name: 'b' })
  expect(two).toBe('kind: Cluster\nspec: {workers: [{name: a}, {name: b}]}\n')
  expect(drop(two, 'Cluster', ['spec', 'workers', 1])).toBe(flow)
})

test('the first key of an item goes, and the next takes its place', () => {
  expect(set(cluster, 'Cluster', ['spec', 'workers', 0, 'name'], undefined)).toBe(
    cluster.replace('- name: a\n      count', '- count'),
  )
})

test.each([
  ['1.30', '"1.30"'],
  ['true', '"true"'],
  ['k8s-1.37', 'k8s-1.37'],
  ['10.0.0.0/24', '10.0.0.0/24'],
  ['qemu:///system', 'qemu:///system'],
  ['a: b', '"a: b"'],
  ['', '""'],
  ['null', '"null"'],
  ['<b>&\u202e', '"<b>&\u202e"'],
])('%s is written as %s', (value, written) => {
  const text = set('kind: X\nspec:\n  a: 1\n', 'X', ['spec', 'b'], value)
  expect(text).toBe(`kind: X\nspec:\n  a: 1\n  b: ${written}\n`)
  expect(get(text, 'X', ['spec', 'b'])).toBe(value)
})

test('a text that is no YAML is not touched, and its line is told', () => {
  const text = 'kind: X\nspec: {a: [1\n'
  expect(set(text, 'X', ['spec', 'a'], 'b')).toBe(text)
  expect(broken(text)?.line).toBeGreaterThan(0)
})

test('documents come and go', () => {
  const two = append('kind: A\n', 'kind: B\n')
  expect(two).toBe('kind: A\n---\nkind: B\n')
  expect(remove(two, 'B')).toBe('kind: A\n')
  expect(remove(two, 'A')).toBe('kind: B\n')
})
