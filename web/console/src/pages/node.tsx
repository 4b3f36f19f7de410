import { Card, CardBody, CardTitle } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { Link, useParams } from 'react-router'
import { api, list, type Schemas } from '../api/client'
import { acts, sees, useMe } from '../app/me'
import { verbOf, verbs, type Node } from '../nodes/nodes'
import { Actions } from '../ui/actions'
import { Alert } from '../ui/alert'
import { Td, Th, Tr } from '../ui/cells'
import { Command, quoted } from '../ui/command'
import { LinkButton } from '../ui/linkButton'
import { Answer, Facts, Nothing, Page } from '../ui/page'
import { size } from '../ui/size'
import { Time } from '../ui/time'
import { maintenancePath, NodeStatus } from './nodes'

type Machine = Schemas['Machine']

// above are the pages that pages of a node are below of.
export function above(cluster: string) {
  return [
    { to: '/clusters', text: 'Clusters' },
    { to: `/clusters/${cluster}`, text: cluster },
    { to: `/clusters/${cluster}/nodes`, text: 'Nodes' },
  ]
}

export default function NodePage() {
  const { name = '', node = '' } = useParams()
  const me = useMe()
  const asked = api.useQuery('get', '/clusters/{name}/nodes', { params: { path: { name } } })
  const cluster = api.useQuery('get', '/clusters/{name}', { params: { path: { name } } })
  const settings = api.useQuery('get', '/settings', {})
  const mayAct = cluster.data !== undefined && acts(me, cluster.data)
  const seen = list(asked.data?.items).find((n) => n.name === node)
  return (
    <Page
      title={node}
      above={above(name)}
      beside={seen && <NodeStatus of={seen} asked={asked.data?.unseen === undefined} />}
      actions={seen && mayAct && <Verbs cluster={name} of={seen} />}
    >
      <Answer of={asked}>
        {(nodes) =>
          seen ? (
            <div className="stack">
              {nodes.unseen && (
                <Alert isInline variant="warning" title={`The cluster was not asked: ${nodes.unseen}`}>
                  What is shown is what the director and the hypervisor know.
                </Alert>
              )}
              <Problems cluster={name} of={seen} mayAct={mayAct} />
              {nodes.plan && (
                <Alert isInline variant="info" title="A plan has this cluster.">
                  <Link to={`/plans/${nodes.plan}/nodes?node=${seen.name}`}>What it does with this node</Link>
                </Alert>
              )}
              <InCluster of={seen} asked={nodes.unseen === undefined} />
              <Vm of={seen} machine={list(cluster.data?.machines).find((m) => m.name === node)} />
              <Certificates of={seen} />
              {sees(me, 'infrastructure') && <KeptDisks node={node} />}
              <ul>
                <li>
                  <Link to={`/clusters/${name}/plans`}>Plans of the cluster</Link>
                </li>
                {mayAct && (
                  <li>
                    <Link to={`/clusters/${name}/nodes/${node}/console`}>What its VM has printed on its console</Link>
                  </li>
                )}
                {me.can.includes('secrets') && settings.data !== undefined && settings.data.node_shells > 0 && (
                  <li>
                    <Link to={`/clusters/${name}/nodes/${node}/shell`}>A shell on the node</Link>
                  </li>
                )}
              </ul>
              <Command>{`directorctl node list ${quoted(name)}`}</Command>
            </div>
          ) : (
            <Nothing title={`Cluster ${name} has no node of this name.`}>
              <Link to={`/clusters/${name}/nodes`}>Its nodes</Link>
            </Nothing>
          )
        }
      </Answer>
    </Page>
  )
}

function Verbs({ cluster, of }: { cluster: string; of: Node }) {
  const known = verbs.filter((v) => v.operation !== (of.cordoned ? 'node.cordon' : 'node.uncordon'))
  return (
    <Actions>
      {known.map((v) => (
        <LinkButton
          key={v.verb}
          variant={v.verb === 'drain' ? 'primary' : 'secondary'}
          isDanger={v.verb === 'delete'}
          to={maintenancePath(cluster, [of.name], v.operation)}
        >
          {v.title}
        </LinkButton>
      ))}
    </Actions>
  )
}

// Problems are what is wrong with the node, and what would end it.
function Problems({ cluster, of, mayAct }: { cluster: string; of: Node; mayAct: boolean }) {
  const problem = of.problem ?? of.reason
  return (
    <>
      {problem && (
        <Alert isInline variant="danger" title={problem}>
          {of.problem && of.reason && of.reason !== of.problem && <p>The cluster says: {of.reason}</p>}
          {of.repair && mayAct && (
            <Link to={maintenancePath(cluster, [of.name], of.repair)}>
              {verbOf(of.repair).title} would put it right
            </Link>
          )}
          {of.hint && <Command>{of.hint}</Command>}
        </Alert>
      )}
      {of.host_lost && <Alert isInline variant="danger" title={`Its host ${of.host ?? ''} was declared lost.`} />}
      {of.host_down && <Alert isInline variant="warning" title={`Its host does not answer: ${of.host_down}`} />}
      {of.kept_by && (
        <Alert isInline variant="info" title={`${of.kept_by} keeps its VM outside of the cluster.`}>
          No plan takes that VM for surplus. A plan that needs one more node brings it back.
        </Alert>
      )}
    </>
  )
}

function InCluster({ of, asked }: { of: Node; asked: boolean }) {
  const behind = of.wanted && of.version && of.wanted !== of.version
  return (
    <Card component="section">
      <CardTitle component="h2">In the cluster</CardTitle>
      <CardBody>
        <Facts
          of={[
            ['Role', of.role],
            ['Pool', of.pool],
            ['Kubernetes', of.version && `${of.version}${behind ? `, the document wants ${of.wanted}` : ''}`],
            ['kubelet reports', of.kubelet],
            ['Ready', of.ready ? 'yes' : asked ? 'no' : 'not known'],
            ['New pods', of.cordoned ? 'none: it is cordoned' : asked ? 'are placed here' : 'not known'],
            ['etcd member', of.etcd === undefined ? undefined : of.etcd ? 'ready' : 'not ready'],
          ]}
        />
      </CardBody>
    </Card>
  )
}

function Vm({ of, machine }: { of: Node; machine?: Machine }) {
  return (
    <Card component="section">
      <CardTitle component="h2">The VM</CardTitle>
      <CardBody>
        <Facts
          of={[
            ['Power', of.power],
            ['Host', of.host],
            ['Address', of.address && <span className="mono">{of.address}</span>],
            ...list(machine?.interfaces).map((i): [string, React.ReactNode] => [
              `Adapter for ${i.role}`,
              <span key={i.mac} className="mono">
                {i.address} on {i.network}, {i.mac}
              </span>,
            ]),
            ['CPUs', machine?.cpus],
            ['Memory', machine?.memory_bytes && size(machine.memory_bytes)],
            ['In the ledger', of.state],
            ['Id at the hypervisor', machine?.vm_id && <span className="mono break">{machine.vm_id}</span>],
          ]}
        />
      </CardBody>
    </Card>
  )
}

function Certificates({ of }: { of: Node }) {
  const all = list(of.certificates)
  if (all.length === 0) return null
  return (
    <Card component="section">
      <CardTitle component="h2">Certificates</CardTitle>
      <CardBody>
        <Table role="table" aria-label="Certificates" variant="compact">
          <Thead>
            <Tr>
              <Th>Of</Th>
              <Th>Good until</Th>
              <Th>Seen</Th>
            </Tr>
          </Thead>
          <Tbody>
            {all.map((c) => (
              <Tr key={c.name}>
                <Td dataLabel="Of">
                  {c.name}
                  {c.unchecked && ', which nothing checks'}
                </Td>
                <Td dataLabel="Good until">
                  <Time at={c.ends_at} />
                </Td>
                <Td dataLabel="Seen">
                  <Time at={c.seen_at} />
                </Td>
              </Tr>
            ))}
          </Tbody>
        </Table>
      </CardBody>
    </Card>
  )
}

// KeptDisks are data disks that VMs of the node have left behind.
function KeptDisks({ node }: { node: string }) {
  const asked = api.useQuery('get', '/disks', {})
  const disks = list(asked.data?.items).filter((d) => d.node === node)
  if (disks.length === 0) return null
  return (
    <Card component="section">
      <CardTitle component="h2">Disks that its VMs left behind</CardTitle>
      <CardBody>
        <ul>
          {disks.map((d) => (
            <li key={d.name} className="break">
              {d.name}: {d.state}
              {d.size_bytes ? `, ${size(d.size_bytes)}` : ''}
            </li>
          ))}
        </ul>
        <Link to="/infrastructure/disks">All kept disks</Link>
      </CardBody>
    </Card>
  )
}
