import { Card, CardBody, CardTitle } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import type { ReactNode } from 'react'
import { Link } from 'react-router'
import { api, list, type Schemas } from '../api/client'
import { sees, useMe } from '../app/me'
import { Td, Th, Tr } from '../ui/cells'
import { Command } from '../ui/command'
import { Time } from '../ui/time'

// Problem is something that a person has to see to, with where that is done.
interface Problem {
  what: string
  to: string
  name: string
  why?: ReactNode
  hint?: string // a command
}

const most = 20 // of each kind
const often = { refetchInterval: 60_000 }

// Ill lists everything that does not work as it should. It shows nothing while all is well.
export function Ill({ summary }: { summary?: Schemas['Summary'] }) {
  const me = useMe()
  const whole = sees(me, 'infrastructure')
  const wholly = { ...often, enabled: whole }
  const clusters = api.useQuery(
    'get',
    '/clusters',
    { params: { query: { status: ['failed', 'unfinished'], limit: most, fields: ['name', 'status', 'plan'] } } },
    often,
  )
  const nodes = api.useQuery(
    'get',
    '/nodes',
    { params: { query: { problem: 'true', limit: most } } },
    { ...often, enabled: (summary?.problems ?? 0) > 0 },
  )
  const capacity = api.useQuery('get', '/capacity', {}, wholly)
  const backups = api.useQuery('get', '/backups', {}, wholly)
  const schedules = api.useQuery('get', '/schedules', {}, wholly)
  const problems = [
    ...illClusters(list(clusters.data?.items)),
    ...(summary?.problems ? illNodes(list(nodes.data?.items), summary.problems) : []),
    ...illProviders(list(capacity.data?.items)),
    ...endingCertificates(summary?.certificates, whole),
    ...lateBackups(list(backups.data?.clusters)),
    ...missedSlots(list(schedules.data?.items)),
  ]
  if (problems.length === 0) return null
  return (
    <Card component="section">
      <CardTitle component="h2">What is ill</CardTitle>
      <CardBody>
        <Table role="table" aria-label="What is ill" variant="compact">
          <Thead>
            <Tr>
              <Th width={20}>What</Th>
              <Th width={30}>Where</Th>
              <Th>Why</Th>
            </Tr>
          </Thead>
          <Tbody>
            {problems.map((p) => (
              <Tr key={`${p.what} ${p.name}`}>
                <Td dataLabel="What">{p.what}</Td>
                <Td dataLabel="Where">
                  <Link to={p.to} className="break">
                    {p.name}
                  </Link>
                </Td>
                <Td dataLabel="Why" className="break">
                  {p.why ?? '–'}
                  {p.hint && <Command>{p.hint}</Command>}
                </Td>
              </Tr>
            ))}
          </Tbody>
        </Table>
      </CardBody>
    </Card>
  )
}

function illClusters(of: Schemas['Cluster'][]): Problem[] {
  return of.map((c) => ({
    what: 'Cluster',
    to: `/clusters/${c.name}`,
    name: c.name,
    why: c.plan ? (
      <>
        {c.status}: <Link to={`/plans/${c.plan}`}>its plan</Link>
      </>
    ) : (
      c.status
    ),
  }))
}

// illNodes names hosts that do not answer once, and not for each of their nodes.
function illNodes(of: Schemas['FleetNode'][], total: number): Problem[] {
  const hosts = new Map<string, Problem>()
  const nodes: Problem[] = []
  for (const n of of) {
    if (n.host && (n.host_lost || n.host_down)) {
      hosts.set(n.host, {
        what: 'Host',
        to: `/nodes?${new URLSearchParams({ host: n.host, problem: 'true' }).toString()}`,
        name: n.host,
        why: n.host_lost ? 'It was declared lost.' : n.host_down,
      })
    } else {
      const to = `/clusters/${n.cluster}/nodes/${n.name}`
      nodes.push({ what: 'Node', to, name: n.name, why: n.problem ?? n.reason, hint: n.hint })
    }
  }
  const rest = total - of.length
  const more = { what: 'Nodes', to: '/nodes?problem=true', name: `${rest} more`, why: 'They have a problem too.' }
  return [...hosts.values(), ...nodes, ...(of.length > 0 && rest > 0 ? [more] : [])]
}

function illProviders(of: Schemas['Capacity'][]): Problem[] {
  return of
    .filter((p) => p.unseen)
    .map((p) => ({
      what: 'Provider',
      to: '/infrastructure/capacity',
      name: p.provider,
      why: [p.unseen, p.hint].filter((t) => t).join('; '),
    }))
}

function endingCertificates(of: Schemas['Certificates'] | undefined, whole: boolean): Problem[] {
  if (!of || of.ending === 0) return []
  return [
    {
      what: 'Certificates',
      to: whole ? '/certificates?ends=30' : '/nodes?sort=ends_at',
      name: of.ending === 1 ? '1 node' : `${of.ending} nodes`,
      why: (
        <>
          {of.ended > 0 && `${of.ended} ended. `}The first ends <Time at={of.next_at} />.
        </>
      ),
    },
  ]
}

function lateBackups(of: Schemas['BackupAge'][]): Problem[] {
  const late = of
    .filter((c) => c.late)
    .map((c) => ({
      what: 'Backup',
      to: `/clusters/${c.cluster}/backups`,
      name: c.cluster,
      why: c.newest_at ? (
        <>
          The newest is from <Time at={c.newest_at} />.
        </>
      ) : (
        'There is none in every target.'
      ),
    }))
  const drills = of.flatMap(({ cluster, drills: d }) => {
    if (d?.newest?.problem) {
      return [{ what: 'Restore drill', to: `/plans/${d.newest.plan}`, name: cluster, why: d.newest.problem }]
    }
    return d?.late
      ? [{ what: 'Restore drill', to: '/backups', name: cluster, why: 'The last one is too long ago.' }]
      : []
  })
  return [...late, ...drills]
}

// missedSlots are schedules whose newest run did not do what it should.
function missedSlots(of: Schemas['Schedule'][]): Problem[] {
  return of.flatMap((s) => {
    const run = list(s.runs)[0]
    if (!run || !['missed', 'failed', 'interrupted'].includes(run.status)) return []
    const slots = run.missed && run.missed > 1 ? `${run.missed} slots were missed.` : `The run is ${run.status}.`
    const why = [slots, run.message, run.hint].filter((t) => t).join(' ')
    return [{ what: 'Schedule', to: run.plan ? `/plans/${run.plan}` : '/schedules', name: s.name, why }]
  })
}
