// What the page of a plan shows, computed from the plan alone.
import type { Schemas } from '../api/client'

export type Plan = Schemas['Plan']
export type Step = Schemas['Step']

export type Verb = 'approve' | 'start' | 'resume' | 'pause' | 'cancel' | 'retry' | 'undo' | 'discard'

const verbs: Record<string, Verb[]> = {
  planned: ['approve', 'start', 'discard'],
  approved: ['start', 'discard'],
  running: ['pause', 'cancel'],
  paused: ['resume', 'cancel'],
  cancelling: ['cancel'],
  cancelled: ['retry', 'undo', 'discard'],
  parked: ['retry', 'undo', 'cancel', 'discard'],
  failed: ['retry', 'undo', 'discard'],
}

// verbsOf returns what can be done with the plan now. docs/reference/state-machine.md has the states.
export function verbsOf(plan: Pick<Plan, 'status' | 'approvals'>): Verb[] {
  const all = verbs[plan.status] ?? []
  return plan.approvals?.length ? all : all.filter((v) => v !== 'approve')
}

// Plans with these statuses wait for a person, or move.
export const waiting = ['planned', 'approved', 'parked', 'failed', 'paused', 'cancelled']
export const moving = ['running', 'cancelling', 'undoing']

// saidOf is a wait in a label's few words, and what there is to say beyond them. The reason of a whole plan has both:
// "it is failed: no route" is labelled "failed". A step's wait has the label of its plan.
export function saidOf(wait: Pick<Schemas['PlanWait'], 'reason' | 'step'>): { label?: string; more: string } {
  const [, label, more = ''] = /^it (?:is )?([^:]+)(?:: ?(.*))?$/s.exec(wait.step ? '' : wait.reason) ?? []
  return label ? { label, more } : { more: wait.reason }
}

export const ended = (status: string) => ['done', 'undone', 'discarded'].includes(status)

// The verbs of effects, what is lost first.
const effectOrder = ['delete', 'fence', 'evict', 'restart', 'change', 'create', 'keep']

// The names of a group have their details, and are in the order of the steps. There may be more than these.
export type Effect = Schemas['Effect']
export type EffectGroup = Schemas['EffectGroup']

// effectsOf gathers effects by what they do to what.
export function effectsOf(effects: Effect[]): EffectGroup[] {
  const groups = new Map<string, EffectGroup>()
  for (const e of effects) {
    const key = `${e.verb} ${e.object}`
    let g = groups.get(key)
    if (!g) groups.set(key, (g = { verb: e.verb, object: e.object, total: 0, names: [] }))
    const name = e.detail ? `${e.name} (${e.detail})` : e.name
    if (!g.names.includes(name)) g.total = g.names.push(name)
  }
  return [...groups.values()]
}

// lossFirst puts what is lost before the rest.
export function lossFirst(groups: EffectGroup[]): EffectGroup[] {
  const rank = (g: EffectGroup) => effectOrder.indexOf(g.verb) // what is not known may be a loss: it comes first
  return groups.toSorted((a, b) => rank(a) - rank(b) || a.object.localeCompare(b.object))
}

const things: Record<string, [one: string, many: string]> = {
  vm: ['VM', 'VMs'],
  address: ['address', 'addresses'],
  api: ['API object', 'API objects'],
  registry: ['registry', 'registries'],
}

// counted is a number of things that effects are about.
export function counted(n: number, object: string): string {
  const [one, many] = things[object] ?? [object, `${object}s`]
  return `${n} ${n === 1 ? one : many}`
}

export const stepPath = (plan: string, step: string) => `/plans/${plan}/steps/${encodeURIComponent(step)}`

// phaseOf is the kind or the group of a step in words: "vm.ensure" is the phase "vm ensure".
export function phaseOf(kind: string): string {
  return kind.replaceAll('.', ' ').replaceAll('_', ' ')
}

// The statuses of steps that failed or wait for a person.
export const troubled = ['failed', 'parked', 'stuck']

// share is how much of the plan is done, in per cent.
export function share(plan: Pick<Plan, 'steps_done' | 'steps_total'>): number {
  return plan.steps_total === 0 ? 0 : Math.floor((100 * plan.steps_done) / plan.steps_total)
}

export interface Bar {
  step: Step
  after: number // seconds from the plan's start
  took: number // seconds so far
  from: number // of the whole time, in per cent
  width: number
}

// timelineOf arranges what has run by its beginning, up to now.
export function timelineOf(plan: Pick<Plan, 'started_at' | 'finished_at'>, steps: Step[], now: Date): Bar[] {
  const began = plan.started_at ? Date.parse(plan.started_at) : NaN
  if (Number.isNaN(began)) return []
  const end = Math.max(began + 1, plan.finished_at ? Date.parse(plan.finished_at) : now.getTime())
  const share = (ms: number) => Math.min(100, Math.max(0, (100 * ms) / (end - began)))
  return steps
    .filter((s) => s.started_at)
    .map((step) => {
      const start = Date.parse(step.started_at ?? '')
      const stop = step.finished_at ? Math.max(start, Date.parse(step.finished_at)) : end
      return {
        step,
        after: Math.max(0, (start - began) / 1000),
        took: Math.max(0, (stop - start) / 1000),
        from: share(start - began),
        width: Math.max(0.3, share(stop - began) - share(start - began)),
      }
    })
    .sort((a, b) => a.after - b.after || a.step.id.localeCompare(b.step.id))
}
