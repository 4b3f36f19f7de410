// What the page of a plan shows, computed from the plan alone.
import type { Schemas } from '../api/client'
import { gravity } from '../ui/status'

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

export const ended = (status: string) => ['done', 'undone', 'discarded'].includes(status)

// The verbs of effects, what is lost first.
const effectOrder = ['delete', 'fence', 'evict', 'restart', 'change', 'create', 'keep']

export interface EffectGroup {
  verb: string
  object: string
  names: string[] // with their detail, in the order of the steps
}

// effectsOf gathers effects by what they do to what. Deletions come first.
export function effectsOf(effects: Schemas['Effect'][]): EffectGroup[] {
  const groups = new Map<string, EffectGroup>()
  for (const e of effects) {
    const key = `${e.verb} ${e.object}`
    let g = groups.get(key)
    if (!g) groups.set(key, (g = { verb: e.verb, object: e.object, names: [] }))
    const name = e.detail ? `${e.name} (${e.detail})` : e.name
    if (!g.names.includes(name)) g.names.push(name)
  }
  const rank = (g: EffectGroup) => effectOrder.indexOf(g.verb) // what is not known may be a loss: it comes first
  return [...groups.values()].sort((a, b) => rank(a) - rank(b) || a.object.localeCompare(b.object))
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

export interface Cell {
  status: string // of the step that needs a person most
  step: string // its id
  done: number
  total: number
}

export interface Matrix {
  phases: string[]
  rows: { node: string; cells: (Cell | undefined)[] }[]
}

const finished = new Set(['done', 'skipped', 'undone'])

// phaseOf is the kind of a step without the room that it is of: "vm.ensure" is of the phase "vm ensure".
export function phaseOf(step: Step): string {
  return step.kind.replaceAll('.', ' ').replaceAll('_', ' ')
}

// The row of steps that concern the cluster as a whole.
export const wholeCluster = 'cluster'

// matrixOf arranges the steps by node and phase, both in the order in which they first occur. Steps that only run to
// undo others are left out while nothing has failed.
export function matrixOf(steps: Step[]): Matrix {
  const phases: string[] = []
  const at = new Map<string, number>()
  const rows = new Map<string, (Cell | undefined)[]>()
  for (const s of steps) {
    if (s.undoes?.length && s.status === 'pending') continue
    const phase = phaseOf(s)
    let column = at.get(phase)
    if (column === undefined) {
      column = phases.push(phase) - 1
      at.set(phase, column)
    }
    const node = s.node ?? wholeCluster
    let row = rows.get(node)
    if (!row) rows.set(node, (row = []))
    const end = finished.has(s.status) ? 1 : 0
    const cell = row[column]
    if (!cell) row[column] = { status: s.status, step: s.id, done: end, total: 1 }
    else {
      cell.total++
      cell.done += end
      if (worse(s.status, cell.status)) Object.assign(cell, { status: s.status, step: s.id })
    }
  }
  return { phases, rows: [...rows].map(([node, cells]) => ({ node, cells })) }
}

// worse reports whether the first status says more about a cell. Of what has not begun and what is done, the first
// does.
function worse(a: string, b: string): boolean {
  const rank = (s: string) => (s === 'pending' ? gravity('waiting') - 0.5 : gravity(s))
  return rank(a) > rank(b)
}

// troubled are the steps that failed or wait for a person, the first of them first.
export function troubled(steps: Step[]): Step[] {
  return steps.filter((s) => ['failed', 'parked', 'stuck'].includes(s.status))
}

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
