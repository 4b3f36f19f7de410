import { Button, ToolbarItem } from '@patternfly/react-core'
import { Table, Tbody, Td as ChoiceTd, Th as ChoiceTh, Thead } from '@patternfly/react-table'
import { useState } from 'react'
import { Link } from 'react-router'
import { api, list, type Schemas } from '../api/client'
import type { Node } from '../nodes/nodes'
import { Alert } from '../ui/alert'
import { Td, Th, Tr } from '../ui/cells'
import { Command, quoted } from '../ui/command'
import { FilterBar, TextFilter } from '../ui/filters'
import { LinkButton } from '../ui/linkButton'
import { More } from '../ui/more'
import { Answer, Nothing } from '../ui/page'
import { RowLink } from '../ui/rowLink'
import { Status } from '../ui/status'
import { Time } from '../ui/time'
import { useFilters } from '../ui/url'

// maintenancePath is the page that works on some nodes of a cluster.
export function maintenancePath(cluster: string, nodes: string[], operation = 'node.drain'): string {
  return `/clusters/${cluster}/maintenance?${new URLSearchParams({ operation, nodes: nodes.join(',') }).toString()}`
}

export function NodesTab({ cluster, mayAct }: { cluster: string; mayAct: boolean }) {
  const filters = useFilters()
  const asked = api.useQuery('get', '/clusters/{name}/nodes', { params: { path: { name: cluster } } })
  const [chosen, setChosen] = useState<string[]>([])
  return (
    <Answer of={asked}>
      {(nodes) => {
        const text = filters.get('node')
        const all = list(nodes.items)
        const rows = all.filter((n) => n.name.includes(text) || n.pool?.includes(text) || n.host?.includes(text))
        const selected = chosen.filter((c) => all.some((n) => n.name === c))
        return (
          <>
            {nodes.unseen && <Alert isInline variant="warning" title={`The cluster was not asked: ${nodes.unseen}`} />}
            <Cordoned cluster={cluster} nodes={all} mayAct={mayAct} />
            <FilterBar>
              <TextFilter filters={filters} name="node" label="Node, pool or host" />
              {mayAct && all.length > 0 && (
                <ToolbarItem>
                  {selected.length === 0 ? (
                    <Button variant="secondary" isDisabled>
                      Choose nodes to work on
                    </Button>
                  ) : (
                    <LinkButton variant="secondary" to={maintenancePath(cluster, selected)}>
                      Work on {selected.length === 1 ? '1 node' : `${selected.length} nodes`}
                    </LinkButton>
                  )}
                </ToolbarItem>
              )}
            </FilterBar>
            {all.length === 0 ? (
              <Nothing title="The cluster has no nodes." />
            ) : (
              <More of={rows} size={100}>
                {(some) => (
                  <NodeTable
                    cluster={cluster}
                    nodes={some}
                    asked={nodes.unseen === undefined}
                    chosen={mayAct ? selected : undefined}
                    choose={setChosen}
                  />
                )}
              </More>
            )}
            <div className="after">
              <Command>{`directorctl node list ${quoted(cluster)}`}</Command>
            </div>
          </>
        )
      }}
    </Answer>
  )
}

// Cordoned says which nodes take no new pods, so that none of them is forgotten after a maintenance.
export function Cordoned({ cluster, nodes, mayAct }: { cluster: string; nodes: Node[]; mayAct: boolean }) {
  const cordoned = nodes.filter((n) => n.cordoned).map((n) => n.name)
  if (cordoned.length === 0) return null
  return (
    <Alert
      isInline
      variant="warning"
      title={
        (cordoned.length === 1 ? '1 node is' : `${cordoned.length} nodes are`) +
        ' cordoned: no new pod is placed there.'
      }
    >
      <p className="break">{cordoned.slice(0, 20).join(', ')}</p>
      {mayAct && <Link to={maintenancePath(cluster, cordoned, 'node.uncordon')}>Uncordon</Link>}
    </Alert>
  )
}

interface TableProps {
  cluster: string
  nodes: Node[]
  asked: boolean // the cluster itself has answered
  chosen?: string[]
  choose: (names: string[]) => void
}

function NodeTable({ cluster, nodes, asked, chosen, choose }: TableProps) {
  const every = chosen !== undefined && nodes.every((n) => chosen.includes(n.name))
  const shown = nodes.map((n) => n.name)
  return (
    <Table role="table" aria-label="Nodes" variant="compact">
      <Thead>
        <Tr>
          {chosen && (
            <ChoiceTh
              aria-label="Choose all that are shown"
              select={{
                isSelected: every,
                onSelect: (_, on) => choose([...chosen.filter((c) => !shown.includes(c)), ...(on ? shown : [])]),
              }}
            />
          )}
          <Th>Node</Th>
          <Th>Status</Th>
          <Th>Role</Th>
          <Th>Version</Th>
          <Th>Address</Th>
          <Th>Host</Th>
          <Th>Certificates</Th>
        </Tr>
      </Thead>
      <Tbody>
        {nodes.map((n, i) => (
          <Tr key={n.name}>
            {chosen && (
              <ChoiceTd
                select={{
                  rowIndex: i,
                  isSelected: chosen.includes(n.name),
                  onSelect: (_, on) => choose(on ? [...chosen, n.name] : chosen.filter((c) => c !== n.name)),
                }}
              />
            )}
            <Td dataLabel="Node" className="word">
              <RowLink to={`/clusters/${cluster}/nodes/${n.name}`}>{n.name}</RowLink>
            </Td>
            <Td dataLabel="Status">
              <NodeStatus of={n} asked={asked} />
              {(n.problem ?? n.reason) && <div className="hint break">{n.problem ?? n.reason}</div>}
              {n.hint && <div className="hint mono break">{n.hint}</div>}
            </Td>
            <Td dataLabel="Role">
              {n.role}
              {n.pool && n.pool !== n.role && `, ${n.pool}`}
              {n.etcd !== undefined && (n.etcd ? ', etcd ready' : ', etcd not ready')}
            </Td>
            <Td dataLabel="Version">
              {n.version ?? '–'}
              {n.wanted && n.version && n.wanted !== n.version && ` (wanted: ${n.wanted})`}
            </Td>
            <Td dataLabel="Address">{n.address ?? '–'}</Td>
            <Td dataLabel="Host">
              {n.host ?? '–'}
              {n.host_lost ? ' (lost)' : n.host_down ? ' (does not answer)' : ''}
            </Td>
            <Td dataLabel="Certificates">
              <Soonest of={n.certificates} />
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}

interface NodeStatusProps {
  of: Pick<Node, 'ready' | 'cordoned' | 'power'>
  asked: boolean // what is said of it is known from the cluster
}

export function NodeStatus({ of, asked }: NodeStatusProps) {
  const readiness = of.ready ? 'ready' : asked ? 'not ready' : 'not known'
  return (
    <>
      <Status of={readiness} /> {of.cordoned && <Status of="cordoned" />}{' '}
      {of.power && of.power !== 'on' && <Status of="failed" word={`VM ${of.power}`} />}
    </>
  )
}

function Soonest({ of }: { of: Schemas['Certificate'][] | null | undefined }) {
  const first = list(of).find((c) => !c.unchecked)
  return first ? (
    <>
      <Time at={first.ends_at} /> ({first.name})
    </>
  ) : (
    <>–</>
  )
}
