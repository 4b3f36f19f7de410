// What can be done with nodes, and what it means for the cluster, computed from the list of its nodes alone.
import type { Schemas } from '../api/client'
import { quoted } from '../ui/command'

export type Node = Schemas['Node']
export type Operation = 'node.cordon' | 'node.uncordon' | 'node.drain' | 'node.delete' | 'node.rejoin' | 'node.replace'

export interface Verb {
  operation: Operation
  verb: string // as directorctl has it
  title: string
  text: string // what happens
  drains: boolean
}

export const verbs: Verb[] = [
  {
    operation: 'node.cordon',
    verb: 'cordon',
    title: 'Cordon',
    text: 'No new pod is placed on them. What runs there stays.',
    drains: false,
  },
  {
    operation: 'node.uncordon',
    verb: 'uncordon',
    title: 'Uncordon',
    text: 'Pods are placed on them again.',
    drains: false,
  },
  {
    operation: 'node.drain',
    verb: 'drain',
    title: 'Drain',
    text: 'They are cordoned, and their pods move away, one node after the other. They stay in the cluster.',
    drains: true,
  },
  {
    operation: 'node.replace',
    verb: 'replace',
    title: 'Replace',
    text: 'Their VMs are made again, one after the other. They keep their names.',
    drains: true,
  },
  {
    operation: 'node.rejoin',
    verb: 'rejoin',
    title: 'Rejoin',
    text: 'They come back with new VMs, and keep their names and addresses.',
    drains: false,
  },
  {
    operation: 'node.delete',
    verb: 'delete',
    title: 'Delete',
    text: 'They are drained, leave the cluster, and their VMs are destroyed.',
    drains: true,
  },
]

export function verbOf(operation: string): Verb {
  return verbs.find((v) => v.operation === operation) ?? (verbs[2] as Verb)
}

// Work is what a person wants done with some nodes.
export interface Work {
  operation: Operation
  nodes: string[]
  emptydir: boolean
  unmanaged: boolean
  minutes: number // 0 leaves it to the cluster's document
  undrained: boolean
  keepVM: boolean
}

// requestOf is the work as the API takes it: without the options that the operation does not have.
export function requestOf(w: Work): Schemas['PlanRequest'] {
  const drains = verbOf(w.operation).drains
  return {
    operation: w.operation,
    nodes: w.nodes,
    ...(drains && {
      drain: {
        ...(w.emptydir && { delete_emptydir: true }),
        ...(w.unmanaged && { unmanaged: true }),
        ...(w.minutes > 0 && { timeout_seconds: w.minutes * 60 }),
      },
    }),
    ...(w.undrained && drains && w.operation !== 'node.drain' && { undrained: true }),
    ...(w.keepVM && w.operation === 'node.delete' && { keep_vm: true }),
  }
}

// commandOf is the work as directorctl takes it.
export function commandOf(cluster: string, w: Work): string {
  const r = requestOf(w)
  const options = [
    r.drain?.delete_emptydir && '--delete-emptydir-data',
    r.drain?.unmanaged && '--unmanaged',
    r.drain?.timeout_seconds && `--drain-timeout ${w.minutes}m`,
    r.undrained && '--undrained',
    r.keep_vm && '--keep-vm',
  ].filter(Boolean)
  return ['directorctl node', verbOf(w.operation).verb, quoted(cluster), ...w.nodes.map(quoted), ...options].join(' ')
}

export interface Quorum {
  kept: boolean
  text: string
}

// quorumOf says what becomes of etcd while the chosen nodes are away. A member whose state is not known counts if its
// node is ready; in a cluster that was not asked, nothing is known of any.
export function quorumOf(nodes: Node[], chosen: string[], asked = true): Quorum | undefined {
  const masters = nodes.filter((n) => n.role === 'master')
  if (masters.length === 0) return undefined
  const away = masters.filter((n) => chosen.includes(n.name))
  const well = masters.filter((n) => n.etcd ?? n.ready)
  const left = (asked ? well : masters).filter((n) => !chosen.includes(n.name)).length
  const needs = Math.floor(masters.length / 2) + 1
  const has = `etcd has ${masters.length} ${masters.length === 1 ? 'member' : 'members'}, and needs ${needs} of them`
  if (!asked && (away.length === 0 || masters.length - away.length >= needs)) {
    const who = away.length === 0 ? 'No master is among them. ' : ''
    const rest =
      away.length === 0
        ? 'How many'
        : `Without ${away.map((n) => n.name).join(', ')}, ${masters.length - away.length} are left: how many of these`
    return {
      kept: away.length === 0,
      text: `${who}${has}. ${rest} are well is not known, because the cluster was not asked.`,
    }
  }
  if (away.length === 0) {
    return well.length >= needs
      ? { kept: true, text: `No master is among them. ${has}; ${well.length} are well.` }
      : { kept: false, text: `No master is among them, but only ${well.length} are well: ${has}.` }
  }
  const names = away.map((n) => n.name).join(', ')
  const be = away.length === 1 ? 'is' : 'are'
  const meanwhile = `${has}. While ${names} ${be} away, ${left === 1 ? '1 is' : `${left} are`} well`
  if (left < needs) {
    return {
      kept: false,
      text: `${meanwhile}: etcd loses its quorum, and the Kubernetes API stops answering.`,
    }
  }
  const spare = left - needs
  return {
    kept: true,
    text: `${meanwhile}: etcd keeps its quorum, and can lose ${spare === 0 ? 'no other member' : `${spare} more`}.`,
  }
}

export interface Rehearsed {
  node: string
  leave: Schemas['Eviction'][]
  stay: Schemas['Eviction'][]
}

export function rehearsed(node: string, items: Schemas['Eviction'][]): Rehearsed {
  return { node, leave: items.filter((e) => !e.blocked), stay: items.filter((e) => e.blocked) }
}

// helpOf names the option that would let a pod leave that would stay.
export function helpOf(blocked: string | undefined): string {
  switch (blocked) {
    case 'local_data':
      return 'Allow the loss of local data'
    case 'unmanaged':
      return 'Allow pods that nothing makes again'
    case 'budget':
      return 'Wait: the drain tries again until its time is over'
  }
  return ''
}
