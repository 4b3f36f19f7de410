// Reads the log of an attempt as it grows. It keeps the newest lines and the first that failed, never the whole log.
import { lineOf, type Line } from './line'

export interface Snapshot {
  lines: Line[] // the newest
  bad: Line[] // those that failed, the first ones
  total: number
  bytes: number
}

const keepLines = 20_000
const keepBad = 100
const maxLine = 64 << 10 // the director writes lines of half as much at most

// What a line that failed has in it. Most lines are dropped unread: only these are parsed as they come.
const suspicious = /"(?:failed|unreachable|ERROR|lost|run_end)"/

export class LogReader {
  private raws: string[] = [] // the newest lines as they came
  private rendered = new Map<number, Line | undefined>() // of those, by number
  private bad: Line[] = []
  private total = 0
  private bytes = 0 // of whole lines
  private half = new Uint8Array(0)
  private readonly decoder = new TextDecoder()

  constructor(
    private readonly url: string,
    private readonly ask: typeof fetch = (...args) => fetch(...args),
    private readonly keep = keepLines,
  ) {}

  // more reads what is new, from where it stopped. After an answer that breaks off, the next call continues.
  async more(signal: AbortSignal, shown: () => void): Promise<void> {
    this.half = new Uint8Array(0)
    const answer = await this.ask(`${this.url}&offset=${this.bytes}`, { signal, headers: { Accept: '*/*' } })
    if (!answer.ok) throw await answer.json().catch(() => new Error(`The director answered ${answer.status}.`))
    const body = answer.body?.getReader()
    if (!body) return
    for (;;) {
      const { done, value } = await body.read()
      if (done) return
      this.take(value)
      shown()
    }
  }

  take(chunk: Uint8Array): void {
    let all = chunk
    if (this.half.length > 0) {
      all = new Uint8Array(this.half.length + chunk.length)
      all.set(this.half)
      all.set(chunk, this.half.length)
    }
    const whole = all.lastIndexOf(10) + 1
    this.half = all.slice(whole)
    if (whole === 0) return
    this.bytes += whole
    for (const raw of this.decoder.decode(all.subarray(0, whole - 1)).split('\n')) this.add(raw.slice(0, maxLine))
    if (this.raws.length <= this.keep * 1.2) return
    this.raws = this.raws.slice(-this.keep)
    for (const n of this.rendered.keys()) if (n <= this.total - this.keep) this.rendered.delete(n)
  }

  private add(raw: string): void {
    this.raws.push(raw)
    this.total++
    if (this.bad.length >= keepBad || !suspicious.test(raw)) return
    const line = this.render(this.total)
    if (line?.tone === 'bad') this.bad.push(line)
  }

  private render(n: number): Line | undefined {
    if (!this.rendered.has(n)) {
      const line = lineOf(this.raws[this.raws.length - 1 - (this.total - n)] ?? '')
      this.rendered.set(n, line && { ...line, n })
    }
    return this.rendered.get(n)
  }

  // snapshot returns what is kept, or the newest lines of it alone.
  snapshot(newest = this.keep): Snapshot {
    const lines: Line[] = []
    for (let n = Math.max(1, this.total - Math.min(newest, this.raws.length, this.keep) + 1); n <= this.total; n++) {
      const line = this.render(n)
      if (line) lines.push(line)
    }
    return { lines, bad: [...this.bad], total: this.total, bytes: this.bytes }
  }
}

// search returns the places of the lines that have the text, in the order of the lines.
export function search(lines: Line[], text: string): number[] {
  if (text === '') return []
  const wanted = text.toLowerCase()
  const out: number[] = []
  lines.forEach((l, i) => {
    if (l.text.toLowerCase().includes(wanted)) out.push(i)
  })
  return out
}
