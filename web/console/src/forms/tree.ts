// Edits the text of YAML documents in place. Only the bytes of what is changed are written anew: comments, quotes and
// the order of everything else stay as a person wrote them.
import { isMap, isScalar, isSeq, parseAllDocuments, type Document, type Node, type Pair, type YAMLMap } from 'yaml'

export type Path = readonly (string | number)[]
export type Value = string | number | boolean

export interface Part {
  kind: string
  name: string
  document: Document
}

// partsOf are the documents of a text. One that is empty or broken has no kind.
export function partsOf(text: string): Part[] {
  const all = parseAllDocuments(text)
  if (!Array.isArray(all)) return []
  return all.map((document) => ({
    kind: wordAt(document, ['kind']),
    name: wordAt(document, ['metadata', 'name']),
    document,
  }))
}

// A form reads many fields of one text, so it is read once. What is kept is never changed.
let kept: { text: string; parts: Part[] } | undefined

function read(text: string): Part[] {
  if (kept?.text !== text) kept = { text, parts: partsOf(text) }
  return kept.parts
}

function wordAt(document: Document, path: Path): string {
  const node = nodeAt(document, path)
  return isScalar(node) && typeof node.value === 'string' ? node.value : ''
}

// broken says why the text is no YAML, and in which line.
export function broken(text: string): { line: number; message: string } | undefined {
  for (const part of read(text)) {
    const error = part.document.errors[0]
    if (error) return { line: error.linePos?.[0].line ?? 1, message: error.message.split('\n')[0] ?? '' }
  }
  return undefined
}

function nodeAt(document: Document, path: Path): Node | undefined {
  const node = path.length === 0 ? document.contents : document.getIn(path, true)
  return (node as Node | null) ?? undefined
}

// partOf is the first document of a kind, or the one of that name.
export function partOf(text: string, kind: string, name?: string): Part | undefined {
  return read(text).find((p) => p.kind === kind && (name === undefined || p.name === name))
}

// only is the text with the documents of one kind alone.
export function only(text: string, kind: string): string {
  return partsOf(text).reduce((t, p) => (p.kind === kind || p.kind === '' ? t : remove(t, p.kind)), text)
}

// get returns what is at the path: a scalar as it is, the length of a list, or undefined.
export function get(text: string, kind: string, path: Path): Value | undefined {
  const part = partOf(text, kind)
  const node = part && nodeAt(part.document, path)
  if (isSeq(node)) return node.items.length
  if (!isScalar(node)) return undefined
  const value: unknown = node.value
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? value : undefined
}

// lineOf is the line of what is at the path, or of what it would be in.
export function lineOf(text: string, kind: string, name: string, path: Path): number {
  const part = partOf(text, kind, name)
  if (!part) return 0
  for (let n = path.length; n >= 0; n--) {
    const node = nodeAt(part.document, path.slice(0, n))
    if (node?.range) return text.slice(0, node.range[0]).split('\n').length
  }
  return 0
}

// scalar writes a value so that YAML reads the same back. plain is how a person would write it.
export function scalar(value: Value, quote = ''): string {
  if (typeof value !== 'string') return String(value)
  if (quote === "'" && !/[\n\r\t]/.test(value)) return `'${value.replaceAll("'", "''")}'`
  if (quote !== '"' && /^[A-Za-z0-9_./][A-Za-z0-9_./:@+*-]*$/.test(value) && !value.endsWith(':') && plain(value)) {
    return value
  }
  return JSON.stringify(value)
}

// plain reports whether YAML reads the unquoted text as that text, and not as a number or as true.
function plain(value: string): boolean {
  const [document] = parseAllDocuments(value)
  return document !== undefined && 'contents' in document && isScalar(document.contents)
    ? document.contents.value === value
    : false
}

const splice = (text: string, from: number, to: number, insert: string) => text.slice(0, from) + insert + text.slice(to)

// lineStart and lineEnd are where the line of a place begins, and where its line break is.
const lineStart = (text: string, at: number) => text.lastIndexOf('\n', at - 1) + 1
const lineEnd = (text: string, at: number) => {
  const end = text.indexOf('\n', at)
  return end < 0 ? text.length : end
}

// set returns the text with the value at the path of the first document of the kind. What is above it is made.
// undefined takes the field away, with the maps that it leaves empty.
export function set(text: string, kind: string, path: Path, value: Value | undefined): string {
  const part = partOf(text, kind)
  if (!part || part.document.errors.length > 0) return text
  const node = nodeAt(part.document, path)
  if (value === undefined) return drop(text, kind, path)
  if (node && isScalar(node) && node.range && text.slice(node.range[0], node.range[1]) !== '') {
    if (node.value === value) return text
    const old = text[node.range[0]] ?? ''
    const end =
      node.type === 'BLOCK_LITERAL' || node.type === 'BLOCK_FOLDED' ? blockEnd(text, node.range[1]) : node.range[1]
    return splice(text, node.range[0], end, scalar(value, old === '"' || old === "'" ? old : ''))
  }
  return insert(text, part.document, path, scalar(value))
}

const blockEnd = (text: string, at: number) => (text[at - 1] === '\n' ? at - 1 : at)

// insert adds a key that is not there to the deepest map of the path that is.
function insert(text: string, document: Document, path: Path, written: string): string {
  for (let n = path.length - 1; n >= 0; n--) {
    const above = nodeAt(document, path.slice(0, n))
    if (isMap(above) && above.range) {
      const keys = path.slice(n)
      if (above.flow) return insertFlow(text, above, keys, written)
      const first = above.items[0]
      const at = first && keyStart(first)
      if (at === undefined) return text
      return insertBlock(text, endOf(text, above), at - lineStart(text, at), keys, written)
    }
    if (n > 0 && isEmpty(above)) {
      // a key without a value, such as "spec:"
      const map = nodeAt(document, path.slice(0, n - 1))
      const pair = isMap(map) ? pairOf(map, path[n - 1]) : undefined
      const at = pair && keyStart(pair)
      if (at !== undefined) {
        return insertBlock(text, lineEnd(text, at), at - lineStart(text, at) + 2, path.slice(n), written)
      }
    }
  }
  return text
}

const isEmpty = (node: Node | undefined) => isScalar(node) && node.value === null

function pairOf(map: YAMLMap, key: string | number | undefined): Pair | undefined {
  return map.items.find((i) => isScalar(i.key) && i.key.value === key)
}

function keyStart(pair: Pair): number | undefined {
  return isScalar(pair.key) ? pair.key.range?.[0] : undefined
}

// nested is a value below keys, as the lines of a block.
function nested(keys: Path, indent: number, written: string): string {
  return keys
    .map((k, i) => ' '.repeat(indent + 2 * i) + `${k}:` + (i === keys.length - 1 ? ` ${written}` : ''))
    .join('\n')
}

function insertBlock(text: string, end: number, indent: number, keys: Path, written: string): string {
  const lead = end > 0 && text[end - 1] === '\n' ? '' : '\n'
  const tail = lead === '' ? '\n' : ''
  return splice(text, end, end, lead + nested(keys, indent, written) + tail)
}

function insertFlow(text: string, map: YAMLMap, keys: Path, written: string): string {
  const value = keys.reduceRight<string>((v, k, i) => (i === 0 ? `${k}: ${v}` : `{${k}: ${v}}`), written)
  const range = map.range
  if (!range) return text
  let at = range[1] - 1
  while (/\s/.test(text[at - 1] ?? '')) at--
  return splice(text, at, at, map.items.length === 0 ? value : `, ${value}`)
}

// endOf is where the last line of a block ends, with the comment behind its value.
function endOf(text: string, node: Node): number {
  if (isMap(node) && !node.flow && node.items.length > 0) {
    const last = node.items[node.items.length - 1]
    const value = last?.value as Node | null | undefined
    if (value?.range && !(isScalar(value) && value.range[0] === value.range[1])) return endOf(text, value)
    const at = last && keyStart(last)
    return at === undefined ? text.length : lineEnd(text, at)
  }
  if (isSeq(node) && !node.flow && node.items.length > 0) return endOf(text, node.items[node.items.length - 1] as Node)
  const end = node.range?.[1] ?? text.length
  return text[end - 1] === '\n' ? end - 1 : lineEnd(text, end)
}

// drop takes a key or an item away, with the lines that it has for itself.
export function drop(text: string, kind: string, path: Path): string {
  const part = partOf(text, kind)
  const node = part && nodeAt(part.document, path)
  const parent = part && nodeAt(part.document, path.slice(0, -1))
  const key = path[path.length - 1]
  if (!node || !parent || key === undefined) return text
  if (isMap(parent)) {
    const at = parent.items.findIndex((i) => isScalar(i.key) && i.key.value === key)
    const pair = parent.items[at]
    const start = pair && keyStart(pair)
    if (start === undefined) return text
    if (parent.items.length === 1 && path.length > 1) return drop(text, kind, path.slice(0, -1))
    if (parent.flow)
      return dropFlow(
        text,
        parent.items.map((i) => [keyStart(i) ?? 0, flowEnd(i)]),
        at,
      )
    return dropLines(text, start, node, isFirstOfItem(text, start))
  }
  if (isSeq(parent)) {
    const at = Number(key)
    if (parent.items.length === 1) return drop(text, kind, path.slice(0, -1))
    if (parent.flow) {
      return dropFlow(
        text,
        parent.items.map((i) => [(i as Node).range?.[0] ?? 0, (i as Node).range?.[1] ?? 0]),
        at,
      )
    }
    const range = (parent.items[at] as Node).range
    return range ? dropLines(text, range[0], node, false) : text
  }
  return text
}

const flowEnd = (pair: Pair) => (pair.value as Node | null)?.range?.[1] ?? (pair.key as Node).range?.[1] ?? 0

function dropFlow(text: string, items: [from: number, to: number][], at: number): string {
  const [from, to] = items[at] ?? [0, 0]
  const next = items[at + 1]
  const last = items[at - 1]
  return next ? splice(text, from, next[0], '') : splice(text, last ? last[1] : from, to, '')
}

// isFirstOfItem reports whether a key shares its line with the dash of a list's item.
const isFirstOfItem = (text: string, at: number) => text.slice(lineStart(text, at), at).trim() !== ''

function dropLines(text: string, start: number, node: Node, shares: boolean): string {
  const end = Math.min(text.length, endOf(text, node) + 1)
  if (!shares) return splice(text, lineStart(text, start), end, '')
  // the next key takes the place behind the dash
  const indent = start - lineStart(text, start)
  return splice(text, start, end + indent, '')
}

// add appends an item with these fields to the list at the path, and makes the list where there is none.
export function add(text: string, kind: string, path: Path, fields: Record<string, Value>): string {
  const part = partOf(text, kind)
  if (!part || part.document.errors.length > 0) return text
  const seq = nodeAt(part.document, path)
  const entries = Object.entries(fields).map(([k, v]) => `${k}: ${scalar(v)}`)
  if (isSeq(seq) && seq.range) {
    if (seq.flow) {
      const at = seq.range[1] - 1
      return splice(text, at, at, `${seq.items.length === 0 ? '' : ', '}{${entries.join(', ')}}`)
    }
    const first = (seq.items[0] as Node | undefined)?.range?.[0] ?? 0
    const dash = text.lastIndexOf('-', first)
    const indent = dash - lineStart(text, dash)
    return insertLines(text, endOf(text, seq), itemLines(entries, indent))
  }
  // A list begins as an empty one, which is then filled as a block.
  const holder = insert(text, part.document, path, '[]')
  const at = holder === text ? undefined : nodeAt(partOf(holder, kind)?.document ?? part.document, path)?.range
  if (!at) return text
  const key = lineStart(holder, at[0])
  const indent = /^ */.exec(holder.slice(key))?.[0].length ?? 0
  return splice(holder, at[0] - 1, at[1], '\n' + itemLines(entries, indent + 2))
}

function insertLines(text: string, end: number, lines: string): string {
  return text[end - 1] === '\n' ? splice(text, end, end, lines + '\n') : splice(text, end, end, '\n' + lines)
}

const itemLines = (entries: string[], indent: number) =>
  entries.map((e, i) => ' '.repeat(indent) + (i === 0 ? '- ' : '  ') + e).join('\n')

// append puts a document behind the others.
export function append(text: string, document: string): string {
  if (text.trim() === '') return document
  return `${text.replace(/\n*$/, '\n')}---\n${document}`
}

// remove takes the first document of a kind out of the text.
export function remove(text: string, kind: string): string {
  const chunks = text.split(/^---[ \t]*\n/m)
  const at = chunks.findIndex((c) => partOf(c, kind) !== undefined)
  return at < 0 ? text : chunks.filter((_, i) => i !== at).join('---\n')
}
