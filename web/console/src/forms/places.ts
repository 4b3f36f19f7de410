// Where in a text the director found something wrong.
import type { Schemas } from '../api/client'
import { lineOf } from './tree'

export const source = 'text'

export interface Mark {
  line: number // from 1; 0 if the place is not known
  field: string
  message: string
  hint: string
  document: string // Kind/name, where it is known
  pointer: string // JSON pointer to the place, where it is known
}

// marksOf reads places such as "text:12: spec.workers[0].memory", and looks in the text for those that have no line.
export function marksOf(fields: Schemas['ProblemField'][], text: string): Mark[] {
  return fields.map((f) => {
    const place = /^text:(\d+)(?::\d+)?:?\s*(.*)$/s.exec(f.field)
    return {
      line: place ? Number(place[1]) : lineAt(text, f.document, f.pointer),
      field: place ? (place[2] ?? '') : f.field,
      message: f.message,
      hint: f.hint ?? '',
      document: f.document ?? '',
      pointer: f.pointer ?? '',
    }
  })
}

function lineAt(text: string, document = '', pointer = ''): number {
  const slash = document.indexOf('/')
  if (slash < 0) return 0
  const path = pointer
    .split('/')
    .slice(1)
    .map((k) => k.replaceAll('~1', '/').replaceAll('~0', '~'))
  return lineOf(text, document.slice(0, slash), document.slice(slash + 1), path)
}
