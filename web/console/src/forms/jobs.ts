// Follows jobs of the director, such as the import of an image, to their end.
import type { Schemas } from '../api/client'
import { problemOf } from '../api/problem'
import { wait as pause } from './bring'

interface Job {
  stage: string
  problem?: Schemas['Problem']
}

// away is how often a director that does not answer is asked again: two minutes of a restart, or of an upgrade.
const away = 120

// patiently asks again while the director does not answer.
async function patiently<T>(ask: () => Promise<T>, wait: typeof pause, signal?: AbortSignal): Promise<T> {
  for (let failures = 1; ; failures++) {
    signal?.throwIfAborted()
    try {
      return await ask()
    } catch (err) {
      if (!(err instanceof TypeError) || failures > away || signal?.aborted) throw err // fetch throws it
    }
    await wait(1000)
  }
}

export interface Asks<J extends Job> {
  start: () => Promise<J> // may be called again: what has begun is not begun twice
  again: (job: J) => Promise<J>
  show: (job: J) => void
  signal?: AbortSignal
  wait?: typeof pause
}

// ended starts a job, asks for it until it has ended, and throws what went wrong with it. A director that starts again
// meanwhile has forgotten its jobs: this one is started once more.
export async function ended<J extends Job>({ start, again, show, signal, wait = pause }: Asks<J>): Promise<J> {
  let job = await patiently(start, wait, signal)
  while (job.stage !== 'done' && job.stage !== 'failed') {
    signal?.throwIfAborted()
    show(job)
    await wait(500)
    const last = job
    try {
      job = await patiently(() => again(last), wait, signal)
    } catch (err) {
      if (problemOf(err).status !== 404) throw err
      job = await patiently(start, wait, signal)
    }
  }
  if (job.problem) throw job.problem
  return job
}
