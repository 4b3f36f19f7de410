// The fields of the forms, by kind. A form has what most people change; the text next to it has everything.
import type { FoundKind } from './found'
import { get, type Path, type Value } from './tree'
import type { Kind } from './kinds'

export interface Field {
  path: Path
  label: string
  help?: string
  type?: 'text' | 'number' | 'choice'
  options?: [value: string, text: string][]
  of?: Kind // names a document of this kind
  found?: FoundKind // names something that the provider has
  place?: Path // where the document says in what that has to be
  empty?: string // what holds where it is left out
  when?: (text: string, kind: Kind) => boolean
}

const is =
  (path: Path, ...values: Value[]) =>
  (text: string, kind: Kind) =>
    values.includes(get(text, kind, path) ?? '')

const libvirt = is(['spec', 'type'], 'libvirt')
const vsphere = is(['spec', 'type'], 'vsphere')
const v = (key: string): Path => ['spec', 'vsphere', key]

export const fields: Partial<Record<Kind, Field[]>> = {
  Provider: [
    { path: ['metadata', 'name'], label: 'Name' },
    {
      path: ['spec', 'libvirt', 'hosts', 0, 'uri'],
      label: 'Address of libvirt',
      help: 'qemu:///system is this machine. Others: qemu+ssh://USER@HOST/system?keyfile=/etc/director/providers/KEY',
      when: libvirt,
    },
    { path: ['spec', 'libvirt', 'hosts', 0, 'name'], label: 'Name of the host', when: libvirt },
    {
      path: ['spec', 'libvirt', 'hosts', 0, 'pool'],
      label: 'Storage pool',
      empty: 'default',
      when: libvirt,
      found: 'storage_pool',
      place: ['spec', 'libvirt', 'hosts', 0, 'name'],
    },
    { path: v('url'), label: 'Address of the vCenter', help: 'Such as https://vcenter.example.org/sdk', when: vsphere },
    { path: v('credentials'), label: 'Name of its credentials', help: 'They are set apart, below.', when: vsphere },
    {
      path: v('thumbprint'),
      label: 'SHA-256 of its certificate',
      help: 'Only if no authority that the director knows has signed it.',
      when: vsphere,
    },
    { path: v('datacenter'), label: 'Datacenter', when: vsphere, found: 'datacenter' },
    { path: v('cluster'), label: 'Cluster of hosts', when: vsphere, found: 'cluster', place: v('datacenter') },
    {
      path: ['spec', 'vsphere', 'datastores', 0],
      label: 'Datastore',
      when: vsphere,
      found: 'datastore',
      place: v('datacenter'),
    },
    {
      path: v('folder'),
      label: 'Folder of VMs',
      empty: "the datacenter's own",
      when: vsphere,
      found: 'folder',
      place: v('datacenter'),
    },
    {
      path: v('resourcePool'),
      label: 'Resource pool',
      empty: "the cluster's own",
      when: vsphere,
      found: 'resource_pool',
      place: v('datacenter'),
    },
  ],
  Network: [
    { path: ['metadata', 'name'], label: 'Name' },
    { path: ['spec', 'provider'], label: 'Provider', of: 'Provider' },
    {
      path: ['spec', 'mode'],
      label: 'Mode',
      type: 'choice',
      options: [
        ['open', 'open: a new bridge, routed'],
        ['nat', "nat: a new bridge behind the host's address"],
        ['isolated', 'isolated: a new bridge, without a way out'],
        ['bridge', 'bridge: one that is there'],
        ['portgroup', 'portgroup: of vSphere'],
      ],
    },
    { path: ['spec', 'bridge'], label: 'Bridge', found: 'bridge', when: is(['spec', 'mode'], 'bridge') },
    { path: ['spec', 'portGroup'], label: 'Port group', found: 'port_group', when: is(['spec', 'mode'], 'portgroup') },
    { path: ['spec', 'cidr'], label: 'Range', help: 'Such as 10.88.0.0/24' },
    { path: ['spec', 'gateway'], label: 'Gateway', empty: 'the first address of the range' },
    { path: ['spec', 'pool', 'from'], label: 'First address for nodes' },
    { path: ['spec', 'pool', 'to'], label: 'Last address for nodes' },
    { path: ['spec', 'vlan'], label: 'VLAN', type: 'number', empty: 'none' },
  ],
  Image: [
    { path: ['metadata', 'name'], label: 'Name' },
    { path: ['spec', 'source'], label: 'File on the director', empty: 'an image that was imported' },
    { path: ['spec', 'sha256'], label: 'SHA-256 of the file' },
    { path: ['spec', 'kubernetes'], label: 'Version of Kubernetes in it', help: 'Such as v1.37.0' },
  ],
  Release: [
    { path: ['metadata', 'name'], label: 'Name' },
    { path: ['spec', 'digest'], label: 'Digest of an imported bundle', empty: 'not imported' },
    { path: ['spec', 'bundle'], label: 'Directory of a bundle on the director', empty: 'a bundle that was imported' },
    { path: ['spec', 'kubernetes'], label: 'Its version of Kubernetes', help: 'Such as v1.37.0' },
  ],
  Cluster: [
    { path: ['metadata', 'name'], label: 'Name' },
    { path: ['spec', 'provider'], label: 'Provider', of: 'Provider' },
    { path: ['spec', 'network'], label: 'Network', of: 'Network' },
    { path: ['spec', 'image'], label: 'Image', of: 'Image' },
    { path: ['spec', 'release'], label: 'Release', of: 'Release' },
    {
      path: ['spec', 'masters', 'count'],
      label: 'Masters',
      type: 'choice',
      options: [
        ['1', '1: the cluster is down while its host is'],
        ['3', '3: outlive one'],
        ['5', '5: outlive two'],
      ],
    },
    {
      path: ['spec', 'api', 'vip'],
      label: 'Address of the API',
      help: 'An address of the network that is outside of its pool: it moves between the masters.',
      when: is(['spec', 'masters', 'count'], 3, 5),
    },
    { path: ['spec', 'masters', 'cpus'], label: 'CPUs of each master', type: 'number', empty: 'as the size says' },
    { path: ['spec', 'masters', 'memory'], label: 'Memory of each master', empty: 'as the size says' },
    { path: ['spec', 'masters', 'disk'], label: 'Disk of each master', empty: '30GiB' },
  ],
}

// poolFields are those of one pool of workers.
export const poolFields = (at: number): Field[] => [
  { path: ['spec', 'workers', at, 'name'], label: 'Name of the pool' },
  { path: ['spec', 'workers', at, 'count'], label: 'Workers', type: 'number' },
  { path: ['spec', 'workers', at, 'cpus'], label: 'CPUs of each', type: 'number', empty: '2' },
  { path: ['spec', 'workers', at, 'memory'], label: 'Memory of each', empty: '4GiB' },
  { path: ['spec', 'workers', at, 'disk'], label: 'Disk of each', empty: '30GiB' },
]

export const sizes: [value: string, text: string][] = [
  ['auto', 'auto: by the number of workers'],
  ['small', 'small: 2 CPUs, 8 GiB'],
  ['medium', 'medium: 4 CPUs, 16 GiB'],
  ['large', 'large: 8 CPUs, 32 GiB'],
  ['xlarge', 'xlarge: 16 CPUs, 64 GiB'],
]

const auto: [workers: number, cpus: number][] = [
  [10, 2],
  [100, 4],
  [250, 8],
  [500, 16],
  [Infinity, 32],
]

// autoSize is what size auto makes of each master. docs/reference/models.md has the rule.
export function autoSize(workers: number): { cpus: number; memoryGB: number } {
  const cpus = auto.find(([most]) => workers <= most)?.[1] ?? 32
  return { cpus, memoryGB: Math.max(4, cpus * 3.75) }
}

// workersOf is how many workers the document of a cluster asks for.
export function workersOf(text: string): number {
  const pools = Number(get(text, 'Cluster', ['spec', 'workers']) ?? 0)
  let sum = 0
  for (let i = 0; i < pools; i++) sum += Number(get(text, 'Cluster', ['spec', 'workers', i, 'count']) ?? 0)
  return sum
}
