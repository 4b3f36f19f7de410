import { expect, test } from 'vitest'
import { ended } from './jobs'

interface Job {
  id: string
  stage: string
}

const silent = () => Promise.reject(new TypeError('Failed to fetch'))
const lost = () => Promise.reject(Object.assign(new Error(), { kind: 'not_found', detail: 'no such job', status: 404 }))
const now = () => Promise.resolve()

// script answers one request after another.
const script = (answers: (() => Promise<Job>)[]) => () => {
  const next = answers.shift()
  return next ? next() : Promise.reject(new Error('asked too often'))
}
const says = (id: string, stage: string) => () => Promise.resolve({ id, stage })

test('a director that does not answer is asked again', async () => {
  const again = script([silent, silent, says('a', 'checking'), silent, says('a', 'done')])
  const seen: string[] = []
  const job = await ended<Job>({
    start: script([silent, says('a', 'queued')]),
    again,
    show: (j) => seen.push(j.stage),
    wait: now,
  })
  expect(job.stage).toBe('done')
  expect(seen).toEqual(['queued', 'checking'])
})

test('a job that a new director does not know is started once more', async () => {
  const start = script([says('a', 'checking'), silent, says('b', 'checking')])
  const again = script([silent, lost, says('b', 'done')])
  expect((await ended<Job>({ start, again, show: () => undefined, wait: now })).id).toBe('b')
  await expect(start()).rejects.toThrow('asked too often') // both starts were used
})

test('what a job ended with is thrown, and a director that stays away ends it', async () => {
  const failed = { id: 'a', stage: 'failed', problem: { kind: 'invalid', detail: 'no image', status: 422, title: '' } }
  await expect(
    ended({ start: () => Promise.resolve(failed as never), again: silent, show: () => undefined, wait: now }),
  ).rejects.toMatchObject({ detail: 'no image' })
  let asked = 0
  await expect(
    ended<Job>({
      start: says('a', 'checking'),
      again: () => {
        asked++
        return silent()
      },
      show: () => undefined,
      wait: now,
    }),
  ).rejects.toThrow('Failed to fetch')
  expect(asked).toBe(121)
})
