import type { Schemas } from './client'

// A problem that the console found itself is local.
export type Problem = Omit<Schemas['Problem'], 'kind'> & { kind: Schemas['Problem']['kind'] | 'local' }

// problemOf returns what went wrong as the API tells it, whatever was thrown.
export function problemOf(err: unknown): Problem {
  if (isProblem(err)) return err
  if (err instanceof TypeError) {
    return local(
      'The director does not answer.',
      'Look whether it runs, and at the network between. The page tries again by itself.',
    )
  }
  return local(err instanceof Error ? err.message : String(err), '')
}

function isProblem(err: unknown): err is Problem {
  return typeof err === 'object' && err !== null && 'detail' in err && 'kind' in err
}

function local(detail: string, hint: string): Problem {
  return { type: 'about:blank', title: detail, kind: 'local', status: 0, detail, hint }
}
