// A campaign that is being written, as the address of its page has it.
import type { Schemas } from '../api/client'
import { quoted } from '../ui/command'

export type CampaignNew = Schemas['CampaignNew']
export type Target = 'release' | 'patch' | 'operation'

// Written is every field of the form, as it was typed.
export interface Written {
  name: string
  clusters: string
  labels: string
  status: string
  running: string
  target: Target
  release: string
  image: string
  patch: string
  canary: string
  wave: string
  pause: string
  failures: string
  atOnce: string
  window: string // cron; empty for always
  zone: string
  hours: string
}

export const rotation = 'cluster.rotate_pull_password'

const words = (text: string) =>
  text
    .split(/[\s,]+/)
    .map((w) => w.trim())
    .filter((w) => w !== '')

// number is what was typed where a number is wanted. What is none is sent as one that the director refuses.
const number = (text: string) => (text === '' ? undefined : /^\d+$/.test(text) ? Number(text) : -1)

// patchProblem says why the text is no merge patch, before it is sent: the API takes JSON alone.
export function patchProblem(text: string): string | undefined {
  try {
    const patch: unknown = JSON.parse(text)
    if (typeof patch === 'object' && patch !== null && !Array.isArray(patch)) return undefined
  } catch {
    // It is said below.
  }
  return 'This is no JSON object. Write it like {"maintenance": {"window": 2}}'
}

// campaignOf is what the director is asked for.
export function campaignOf(w: Written): CampaignNew {
  const some = (list: string[]) => (list.length > 0 ? list : undefined)
  const target: CampaignNew['target'] =
    w.target === 'operation'
      ? { operation: rotation }
      : w.target === 'patch'
        ? { patch: patchProblem(w.patch) ? undefined : (JSON.parse(w.patch) as never) }
        : { release: w.release || undefined, image: w.image || undefined }
  return {
    name: w.name,
    selector: {
      clusters: some(words(w.clusters)),
      labels: some(words(w.labels)),
      statuses: some(words(w.status)),
      versions: some(words(w.running)),
    },
    target,
    canary: number(w.canary),
    wave: w.wave || undefined,
    pause: w.pause || undefined,
    failures: w.failures || undefined,
    at_once: number(w.atOnce),
    window:
      w.window === ''
        ? undefined
        : { cron: w.window, time_zone: w.zone || undefined, for_seconds: Number(w.hours || '0') * 3600 || 0 },
  }
}

// pathFor is the page that writes a campaign for the clusters that a list shows by its filters. Campaigns choose by
// labels, status, version and names: of other filters the names count, as far as the list has all of them.
export function pathFor(
  get: (filter: string) => string,
  clusters: { name: string }[],
  whole: boolean,
): string | undefined {
  const search = new URLSearchParams()
  const others = get('q') !== '' || get('project') !== ''
  if (clusters.length === 0 || (others && !whole)) return undefined
  const of = others
    ? { clusters: clusters.map((c) => c.name).join(' ') }
    : { labels: get('label'), status: get('status'), running: get('version') }
  for (const [name, value] of Object.entries(of)) if (value !== '') search.set(name, value)
  return `/campaigns/new?${search}`
}

// commandOf is the same on the command line.
export function commandOf(w: Written): string {
  const n = campaignOf(w)
  const flags: [flag: string, value: string | number | undefined][] = [
    ['--release', n.target.release],
    ['--image', n.target.image],
    ['--patch', w.target === 'patch' ? w.patch : undefined],
    ['--operation', n.target.operation],
    ['--cluster', n.selector.clusters?.join(',')],
    ['--selector', n.selector.labels?.join(',')],
    ['--status', n.selector.statuses?.join(',')],
    ['--running', n.selector.versions?.join(',')],
    ['--canary', n.canary || undefined],
    ['--wave', n.wave],
    ['--pause', n.pause],
    ['--failures', n.failures],
    ['--at-once', n.at_once],
    ['--window', n.window?.cron],
    ['--window-zone', n.window?.time_zone],
    ['--window-for', n.window && `${w.hours || '0'}h`],
  ]
  const said = flags.filter(([, v]) => v !== undefined && v !== '').map(([f, v]) => `${f} ${quoted(String(v))}`)
  return ['directorctl campaign create', quoted(w.name), ...said, '--wait'].join(' ')
}
