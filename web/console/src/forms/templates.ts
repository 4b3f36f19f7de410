// What a new document of each kind begins with, in the order in which the console lists kinds. The end-to-end test
// checks each of them against a director.
const head = (kind: string, name: string) => `apiVersion: kaas/v1\nkind: ${kind}\nmetadata:\n  name: ${name}\nspec:\n`

export const templates = {
  Cluster: `# What is left out has defaults: the manual, under Reference, has them all.
${head('Cluster', 'demo')}  release: k8s-1.37
  provider: lab
  image: debian12-k8s-1.37
  network: net1
  masters:
    count: 1     # 3 outlive a host; api.vip is then an address of the network that is outside of its pool
    size: auto   # CPUs and memory by the number of workers
    disk: 30GiB
  workers:
    - name: worker
      count: 3
      cpus: 4
      memory: 8GiB
      disk: 60GiB
`,
  Provider: `# A hypervisor. Its passwords are kept apart, under Infrastructure, Credentials.
${head('Provider', 'lab')}  type: libvirt
  libvirt:
    hosts:
      - name: host1
        uri: qemu:///system
        pool: default
`,
  Network: `# The nodes' network, with the addresses that the director may give to nodes.
${head('Network', 'net1')}  provider: lab
  mode: open
  cidr: 10.88.0.0/24
  gateway: 10.88.0.1
  pool:
    from: 10.88.0.10
    to: 10.88.0.99
`,
  Image: `# What nodes start from. source names a file of the director; an image that was imported needs none.
${head('Image', 'debian12-k8s-1.37')}  source: /var/lib/director/images/node.qcow2
  sha256: "0000000000000000000000000000000000000000000000000000000000000000"
  kubernetes: v1.37.0
`,
  Release: `# The images and packages of a version of Kubernetes. digest names a release bundle that was imported.
${head('Release', 'k8s-1.37')}  digest: "0000000000000000000000000000000000000000000000000000000000000000"
  kubernetes: v1.37.0
`,
  Project: `# Who shares clusters, and how much they may use.
${head('Project', 'web')}  description: The shop and what belongs to it
  quota:
    clusters: 5
    machines: 40
    cpus: 160
    memory: 640GiB
`,
  Schedule: `# What the director does at certain times.
${head('Schedule', 'drift')}  cron: 45 3 * * *
  timeZone: UTC
  job:
    name: drift
`,
  Grant: `# What users may do in a project or on a cluster, beyond their role.
${head('Grant', 'web-team')}  users: [ann]
  role: operator
  project: web
`,
  IdentityProvider: `# Where people log in besides the director. Its secret is set under Infrastructure, Credentials.
${head('IdentityProvider', 'corp')}  type: oidc
  title: Company account
  issuer: https://sso.example.org/realms/corp
  credentials: corp-sso
  groupsClaim: groups
  roles:
    - group: k8s-admins
      role: admin
`,
  BackupTarget: `# Where backups of clusters are kept. Clusters name it in spec.backup.targets.
# type: s3 is for a bucket; see the manual.
${head('BackupTarget', 'offsite')}  type: directory
  directory: /srv/director/backups/offsite
  retention:
    count: 14
`,
  Hook: `# An endpoint that plans tell of their phases, or ask before they continue.
${head('Hook', 'cmdb')}  url: https://cmdb.example.org/director
  phases: [before.drain, after.unlock]
  select:
    roles: [worker]
  mode: block
  deadline: 30m
`,
  Consul: `# A datacenter of Consul. Clusters name it in spec.discovery.consul.
# The token is set under Infrastructure, Credentials: its password is the token.
${head('Consul', 'dc1')}  addresses: [https://consul.example.org:8501]
  datacenter: dc1
  domain: consul
  credentials: consul-token
`,
  Notification: `# Who is told by mail what waits for a person and what went wrong.
# webhook instead of mail tells a program.
# The account of the mail server is set under Infrastructure, Credentials.
${head('Notification', 'oncall')}  mail:
    server: mail.example.org
    from: director@example.org
    to: [oncall@example.org]
    credentials: smtp
  about: [approvals, failures, backups]
  quiet:
    - from: "22:00"
      to: "07:00"
      zone: Europe/Berlin
`,
  CertificateAuthority: `# Who issues the authorities of clusters. Clusters name it in spec.certificates.authority.
# type: uploaded, stepCA and self are the others; see the manual.
${head('CertificateAuthority', 'corp')}  type: csr
  subject: Example Corp Kubernetes
`,
  Registry: `# An outer registry that nodes pull images from. Clusters name it in spec.registries.
# The account is set under Infrastructure, Credentials.
${head('Registry', 'docker-hub')}  host: docker.io
  mode: mirror
  endpoints: [https://mirror.example.org]
`,
  Director: `# The VM of another director. Its first password is set under Infrastructure, Credentials.
${head('Director', 'outer')}  provider: lab
  network: nodes
  image: {sha256: '', unsigned: ''}
  credentials: outer-admin
`,
}

// vsphereTemplate is a provider of the other type.
export const vsphereTemplate = `# A vCenter. Its password is kept apart, as credentials.
${head('Provider', 'vcenter')}  type: vsphere
  vsphere:
    url: https://vcenter.example.org/sdk
    credentials: vcenter
    datacenter: DC1
    cluster: Cluster1
    datastores:
      - datastore1
`

// imageDocument is the document of an image that was imported: its checksum finds it.
export function imageDocument(sha256: string, kubernetes: string): string {
  const name = `debian12-k8s-${kubernetes.replace(/^v/, '')}`
  return `${head('Image', name)}  sha256: "${sha256}"\n  kubernetes: ${kubernetes}\n`
}

// releaseDocument is the document of a release bundle that was imported: its digest finds it.
export function releaseDocument(of: { name: string; digest: string; kubernetes: string; unsigned: string }): string {
  const name = /^[a-z0-9][a-z0-9.-]{0,62}$/.test(of.name) ? of.name : 'k8s'
  const reason = of.unsigned ? `  unsigned: ${JSON.stringify(of.unsigned)}\n` : ''
  return `${head('Release', name)}  digest: "${of.digest}"\n  kubernetes: ${of.kubernetes}\n${reason}`
}
