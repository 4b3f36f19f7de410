// The lines of a step's log as people read them: the director's own entries, and the events of a playbook run.

export type Tone = 'plain' | 'head' | 'bad'

export interface Line {
  n: number // in the log, from 1; a few lines say nothing and are left out
  at: string // hours, minutes and seconds, or ''
  text: string
  tone: Tone
}

interface Entry {
  time?: string
  level?: string
  msg?: string
  type?: string
  playbook?: string
  play?: string
  task?: string
  role?: string
  host?: string
  status?: string
  ignored?: boolean
  seconds?: number
  command?: string
  stdout?: string
  stderr?: string
  attempts?: number
  retries?: number
  diff?: string
  count?: number
}

const failures = new Set(['failed', 'unreachable'])

// lineOf renders one line of the log; undefined leaves it out. A line that is not known is shown as it is.
export function lineOf(record: unknown): Omit<Line, 'n'> | undefined {
  if (typeof record !== 'object' || record === null || Array.isArray(record)) return undefined
  const e: Entry = record
  const known = bodyOf(e)
  return known && { at: clock(e.time), text: visible(known.text), tone: known.tone }
}

function bodyOf(e: Entry): { text: string; tone: Tone } | undefined {
  switch (e.type) {
    case undefined:
    case '':
      if (e.msg === '') return undefined
      return e.msg
        ? { text: ownText(e), tone: e.level === 'ERROR' ? 'bad' : 'plain' }
        : { text: JSON.stringify(e), tone: 'plain' }
    case 'run_start':
      return { text: `run ${e.playbook ?? ''}`, tone: 'head' }
    case 'play_start':
      return { text: `play ${e.play ?? ''}`, tone: 'head' }
    case 'task_start':
      return { text: `task ${e.role ? `${e.role}: ` : ''}${e.task ?? ''}`, tone: 'head' }
    case 'host':
      return { text: hostText(e), tone: failures.has(e.status ?? '') && !e.ignored ? 'bad' : 'plain' }
    case 'retry':
      return { text: `  ${e.host}: tries again, ${e.attempts} of ${e.retries}`, tone: 'plain' }
    case 'diff':
      return { text: e.diff ?? '', tone: 'plain' }
    case 'output':
      return { text: e.msg ?? '', tone: 'plain' }
    case 'waiting':
      return { text: 'waits for other runs to end', tone: 'plain' }
    case 'lost':
      return { text: `${e.count} events are missing`, tone: 'bad' }
    case 'run_end':
      return { text: `run ended: ${e.status}${e.msg ? `: ${e.msg}` : ''}`, tone: e.status === 'ok' ? 'head' : 'bad' }
    case 'playbook_start':
    case 'stats':
      return undefined
    default:
      return { text: [e.type, e.host, e.msg].filter(Boolean).join(' '), tone: 'plain' }
  }
}

const ownFields = new Set(['time', 'level', 'msg', 'type', 'n'])

function ownText(e: Entry): string {
  const rest = Object.entries(e)
    .filter(([k]) => !ownFields.has(k))
    .map(([k, v]) => ` ${k}=${typeof v === 'string' ? v : JSON.stringify(v)}`)
    .join('')
  const level = e.level && e.level !== 'INFO' ? `${e.level.toLowerCase()}: ` : ''
  return level + e.msg + rest
}

function hostText(e: Entry): string {
  let text = `  ${e.host}: ${e.status}${e.ignored ? ' (ignored)' : ''}`
  if (e.seconds !== undefined && e.seconds >= 0.1) text += ` in ${e.seconds.toFixed(1)} s`
  if (!failures.has(e.status ?? '')) return text
  if (e.msg) text += `: ${e.msg}`
  for (const [name, value] of [
    ['command', e.command],
    ['stdout', e.stdout],
    ['stderr', e.stderr],
  ]) {
    if (value) text += `\n    ${name}: ${value.trimEnd().replaceAll('\n', '\n    ')}`
  }
  return text
}

function clock(time: string | undefined): string {
  if (!time) return ''
  const at = new Date(time)
  const two = (n: number) => String(n).padStart(2, '0') // a hundred times as fast as the browser's own forms
  return Number.isNaN(at.getTime()) ? '' : `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`
}

// What colours a terminal says nothing here, and what turns the direction of text could hide what it says. Both come
// from nodes.
const sequences = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g
const invisible = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g

export function visible(text: string): string {
  return text.replace(sequences, '').replace(invisible, '\ufffd')
}

// printed is what a terminal has been sent, as plain lines: without its control sequences, and of what was overwritten
// in a line what came last.
export function printed(text: string): string[] {
  const lines = text.replaceAll(sequences, '').replaceAll(/\r+\n/g, '\n').split('\n')
  return lines.map((l) => visible(l.slice(l.lastIndexOf('\r', l.length - 2) + 1)))
}
