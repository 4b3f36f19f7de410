// What the pages of campaigns show, computed from the campaign alone.
import type { Schemas } from '../api/client'
import { list } from '../api/client'

export type Campaign = Schemas['Campaign']
export type CampaignVerb = 'agree' | 'pause' | 'resume' | 'end'

// The states of clusters in the order in which they are told, and as people read them.
const states: [state: string, words: string][] = [
  ['failed', 'failed'],
  ['running', 'running'],
  ['planned', 'planned'],
  ['agreed', 'agreed'],
  ['outdated', 'outdated'],
  ['unplanned', 'unplanned'],
  ['done', 'done'],
  ['skipped', 'skipped'],
  ['refused', 'refused'],
  ['nothing', 'with nothing to do'],
]

// countsText says how many clusters are in each state: "1 failed, 18 done". What is ill comes first.
export function countsText(counts: Record<string, number>): string {
  return states
    .filter(([state]) => (counts[state] ?? 0) > 0)
    .map(([state, words]) => `${counts[state]} ${words}`)
    .join(', ')
}

// targetText says what becomes of each cluster.
export function targetText(target: Campaign['target']): string {
  if (target.operation) return target.operation
  if (target.release) return `Release/${target.release}${target.image ? ` with Image/${target.image}` : ''}`
  return `patch ${JSON.stringify(target.patch)}`
}

// verbsOf returns what can be done with the campaign now. Plans that are made again are not agreed to meanwhile.
export function verbsOf(c: Pick<Campaign, 'status' | 'wave' | 'waves'>): CampaignVerb[] {
  if (c.status === 'done' || c.status === 'ended') return []
  const wave = list(c.waves)[c.wave - 1]
  const settled = c.status !== 'planning' && wave?.hash && (wave.counts['planned'] ?? 0) > 0
  const agree: CampaignVerb[] = settled ? ['agree'] : []
  return [...agree, c.status === 'paused' ? 'resume' : 'pause', 'end']
}

// messageOf is the most important word on a cluster.
export function messageOf(m: Schemas['CampaignCluster']): string {
  if (m.reason) return `${m.reason} (${m.skipped_by ?? ''})`
  if (m.message) return list(m.path).length > 0 ? `${m.message}; path: ${list(m.path).join(', ')}` : m.message
  if (m.difference) return `planned again: ${m.difference}`
  return m.summary ?? ''
}
