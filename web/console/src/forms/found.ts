// What a provider has, as choices of the fields of a form.
import type { Schemas } from '../api/client'
import { size } from '../ui/size'
import { get } from './tree'

export type Found = Schemas['Discovered']
export type FoundKind = Found['kind']

export const foundWords: Record<FoundKind, [one: string, many: string]> = {
  host: ['host', 'Hosts'],
  storage_pool: ['storage pool', 'Storage pools'],
  network: ['network', 'Networks'],
  bridge: ['bridge', 'Bridges'],
  datacenter: ['datacenter', 'Datacenters'],
  cluster: ['cluster of hosts', 'Clusters of hosts'],
  resource_pool: ['resource pool', 'Resource pools'],
  datastore: ['datastore', 'Datastores'],
  port_group: ['port group', 'Port groups'],
  folder: ['folder of VMs', 'Folders of VMs'],
  template: ['template', 'Templates'],
}

// about says what helps to choose between things of one kind.
export function about(i: Found): string {
  const parts: string[] = []
  if (i.size_bytes) parts.push(`${size(i.free_bytes ?? 0)} of ${size(i.size_bytes)} free`)
  if (i.memory_bytes) {
    parts.push(`${i.cpus ?? 0} CPUs`, `${size(i.memory_free_bytes ?? 0)} of ${size(i.memory_bytes)} memory free`)
    parts.push(`${i.vms ?? 0} VMs`)
  }
  if (i.about) parts.push(i.about)
  if (i.problem) parts.push(i.problem)
  return parts.join(', ')
}

// last is the name in an inventory path: documents may have either.
const last = (path: string) => path.split('/').pop() ?? path

// choices are the names of a kind, each once. Places narrow them: a host, or a datacenter by its name or path. A place
// that the provider does not have narrows nothing.
export function choices(items: Found[], kind: FoundKind, place?: string): [value: string, text: string][] {
  const all = items.filter((i) => i.kind === kind)
  const within = all.filter((i) => i.in !== undefined && place && (i.in === place || last(i.in) === place))
  const shown = within.length > 0 ? within : all
  const names = [...new Set(shown.map((i) => i.name))]
  return names.map((name) => {
    const these = shown.filter((i) => i.name === name)
    const said = [...new Set(these.map(about))].filter((s) => s !== '')
    const where = within.length === 0 && these.length > 0 && new Set(shown.map((i) => i.in)).size > 1
    const places = where ? these.map((i) => last(i.in ?? '')).join(', ') : ''
    const words = [said.length === 1 ? said[0] : '', places && `on ${places}`].filter(Boolean).join('; ')
    return [name, words ? `${name} – ${words}` : name]
  })
}

// has reports whether a value of a document is one of the names, written as a path or not.
export function has(names: [value: string, text: string][], value: string): boolean {
  return names.some(([n]) => n === value || last(n) === value)
}

const ofVSphere = ['url', 'thumbprint', 'caFile', 'credentials', 'user', 'passwordFile']

// addressOf is all that the text of a provider says of where it is and who asks there. What a provider has is found
// again when this changes, and not when a name is chosen.
export function addressOf(text: string): string {
  const value = (...path: (string | number)[]) => get(text, 'Provider', ['spec', ...path])
  const hosts = Array.from({ length: Number(value('libvirt', 'hosts') ?? 0) }, (_, i) => [
    value('libvirt', 'hosts', i, 'name'),
    value('libvirt', 'hosts', i, 'uri'),
  ])
  return JSON.stringify([value('type'), hosts, ofVSphere.map((name) => value('vsphere', name))])
}
