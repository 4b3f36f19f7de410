// @vitest-environment jsdom
import { expect, test } from 'vitest'
import { campaignOf, commandOf, pathFor, patchProblem, type Written } from './campaignForm'

const empty: Written = {
  name: '',
  clusters: '',
  labels: '',
  status: '',
  running: '',
  target: 'release',
  release: '',
  image: '',
  patch: '',
  canary: '',
  wave: '',
  pause: '',
  failures: '',
  atOnce: '',
  window: '',
  zone: '',
  hours: '',
}

test('what is left empty is not sent', () => {
  expect(JSON.parse(JSON.stringify(campaignOf(empty)))).toEqual({ name: '', selector: {}, target: {} })
})

test('the command is the same as what is sent', () => {
  const w: Written = {
    ...empty,
    name: "ann's 1.38",
    labels: 'stage=test, tier',
    running: 'v1.37',
    release: 'k8s-1.38',
    image: 'node-1.38',
    canary: '1',
    wave: '10%',
    pause: '1h',
    failures: '2',
    window: '0 22 * * 1-5',
    zone: 'Europe/Berlin',
    hours: '6',
  }
  expect(commandOf(w)).toBe(
    `directorctl campaign create 'ann'\\''s 1.38' --release k8s-1.38 --image node-1.38 --selector stage=test,tier ` +
      `--running v1.37 --canary 1 --wave 10% --pause 1h --failures 2 --window '0 22 * * 1-5' ` +
      `--window-zone Europe/Berlin --window-for 6h --wait`,
  )
  expect(campaignOf(w)).toMatchObject({
    selector: { labels: ['stage=test', 'tier'], versions: ['v1.37'] },
    target: { release: 'k8s-1.38', image: 'node-1.38' },
    canary: 1,
    window: { cron: '0 22 * * 1-5', time_zone: 'Europe/Berlin', for_seconds: 21_600 },
  })
})

test('a target that was chosen away is not sent', () => {
  expect(campaignOf({ ...empty, target: 'operation', release: 'left' }).target).toEqual({
    operation: 'cluster.rotate_pull_password',
  })
  expect(campaignOf({ ...empty, target: 'patch', patch: '{"a":1}' }).target).toEqual({ patch: { a: 1 } })
})

test('a patch is a JSON object, and a number is one', () => {
  expect(patchProblem('{"maintenance":{}}')).toBeUndefined()
  for (const bad of ['', '{', '[1]', '3', 'null']) expect(patchProblem(bad)).toMatch(/no JSON object/)
  expect(campaignOf({ ...empty, canary: 'two' }).canary).toBe(-1)
})

test('a campaign is for the clusters that a list shows', () => {
  const two = [{ name: 'a' }, { name: 'b' }]
  const by = (filters: Record<string, string>) => (name: string) => filters[name] ?? ''
  expect(pathFor(by({ label: 'env=prod', version: 'v1.37' }), two, false)).toBe(
    '/campaigns/new?labels=env%3Dprod&running=v1.37',
  )
  expect(pathFor(by({ q: 'shop', version: 'v1.37' }), two, true)).toBe('/campaigns/new?clusters=a+b')
  expect(pathFor(by({ project: 'shop' }), two, false)).toBeUndefined()
  expect(pathFor(by({}), [], true)).toBeUndefined()
})
