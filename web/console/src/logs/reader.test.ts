import { expect, test } from 'vitest'
import { LogReader, search } from './reader'

const bytes = (text: string) => new TextEncoder().encode(text)
const line = (n: number) => `{"type":"output","msg":"line ${n}"}\n`

test('lines that come in any pieces are whole', () => {
  const all = bytes('{"type":"output","msg":"\u00e9\u00e8"}\n{"type":"output","msg":"two"}\nhalf')
  for (let size = 1; size <= all.length; size++) {
    const r = new LogReader('')
    for (let i = 0; i < all.length; i += size) r.take(all.subarray(i, i + size))
    expect(r.snapshot().lines.map((l) => l.text)).toEqual(['\u00e9\u00e8', 'two'])
    expect(r.snapshot().bytes).toBe(all.length - 'half'.length)
  }
})

test('after an answer that breaks off, reading continues at the last whole line', async () => {
  const asked: string[] = []
  const answers = [line(1) + line(2).slice(0, 9), line(2)]
  const ask = ((url: string) => {
    asked.push(url)
    return Promise.resolve(new Response(answers.shift()))
  }) as typeof fetch
  const r = new LogReader('/log?step=s', ask)
  const signal = new AbortController().signal
  await r.more(signal, () => undefined)
  await r.more(signal, () => undefined)
  expect(r.snapshot().lines.map((l) => l.text)).toEqual(['line 1', 'line 2'])
  expect(asked).toEqual(['/log?step=s&offset=0', `/log?step=s&offset=${line(1).length}`])
})

test('a problem is thrown as the director tells it', async () => {
  const ask = (() =>
    Promise.resolve(new Response('{"detail":"no such step","kind":"not_found"}', { status: 404 }))) as typeof fetch
  await expect(new LogReader('', ask).more(new AbortController().signal, () => undefined)).rejects.toMatchObject({
    kind: 'not_found',
  })
})

test('of many lines the newest are kept, and the first that failed', () => {
  const r = new LogReader('', undefined, 100)
  r.take(bytes('{"type":"host","host":"h","status":"failed"}\n'))
  for (let n = 2; n <= 5000; n++) r.take(bytes(line(n)))
  const { lines, bad, total } = r.snapshot()
  expect(total).toBe(5000)
  expect(lines).toHaveLength(100)
  expect(lines[0]?.n).toBe(4901)
  expect(bad.map((l) => l.n)).toEqual([1])
})

test('a line that says nothing keeps its number', () => {
  const r = new LogReader('')
  r.take(bytes(line(1) + '{"type":"stats"}\n' + line(3)))
  expect(r.snapshot().lines.map((l) => l.n)).toEqual([1, 3])
  expect(r.snapshot(1).lines.map((l) => l.n)).toEqual([3])
})

test('search does not look at the case of letters', () => {
  const r = new LogReader('')
  r.take(bytes(line(1) + line(2) + line(12)))
  expect(search(r.snapshot().lines, 'LINE 1')).toEqual([0, 2])
  expect(search(r.snapshot().lines, '')).toEqual([])
})
