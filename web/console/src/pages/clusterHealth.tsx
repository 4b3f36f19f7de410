import { Card, CardBody, CardTitle } from '@patternfly/react-core'
import { Link } from 'react-router'
import { api, list, type Schemas } from '../api/client'
import { Alert } from '../ui/alert'
import { Answer, Facts } from '../ui/page'
import { Status } from '../ui/status'
import { Time } from '../ui/time'

// Health is how a cluster is, by its nodes as they were seen last.
export function Health({ cluster }: { cluster: string }) {
  const asked = api.useQuery(
    'get',
    '/clusters/{name}/health',
    { params: { path: { name: cluster } } },
    { refetchInterval: 30_000 },
  )
  return (
    <Card component="section">
      <CardTitle component="h2">Health</CardTitle>
      <CardBody>
        <Answer of={asked}>{(h) => <HealthFacts cluster={cluster} of={h} />}</Answer>
      </CardBody>
    </Card>
  )
}

function HealthFacts({ cluster, of }: { cluster: string; of: Schemas['ClusterHealth'] }) {
  const nodes = (condition: string) => `/nodes?${new URLSearchParams({ cluster, condition }).toString()}`
  const strangers = list(of.no_members)
  return (
    <Facts
      of={[
        ['State', <Status key="s" of={of.state} />],
        ['Cause', of.cause],
        [
          'Nodes',
          Object.entries(of.conditions)
            .sort()
            .map(([condition, n], i) => (
              <span key={condition}>
                {i > 0 && ', '}
                <Link to={nodes(condition)}>{`${n} ${condition}`}</Link>
              </span>
            )),
        ],
        [
          'Versions of the nodes',
          Object.entries(of.versions)
            .sort()
            .map(([version, n]) => `${version}: ${n}`)
            .join(', '),
        ],
        [
          'Members of etcd',
          `${of.etcd_members.join(', ') || 'none'}${strangers.length > 0 ? `; not ${strangers.join(', ')}` : ''}`,
        ],
        [
          'Certificate that ends first',
          of.certificate && (
            <>
              <Time at={of.certificate.ends_at} />: {of.certificate.name} of{' '}
              <Link to={`/clusters/${cluster}/nodes/${of.certificate.node}`}>{of.certificate.node}</Link>
            </>
          ),
        ],
        ['Seen', of.seen_at ? <Time at={of.seen_at} /> : 'not all of it yet'],
      ]}
    />
  )
}

// WaitsFor says what the cluster's plans wait for, and who ends it. There is nothing to see while none waits.
export function WaitsFor({ cluster }: { cluster: string }) {
  const asked = api.useQuery(
    'get',
    '/waits',
    { params: { query: { cluster, limit: 20 } } },
    { refetchInterval: 15_000 },
  )
  const waits = list(asked.data?.items)
  if (waits.length === 0) return null
  return (
    <Alert isInline variant="info" title="What it waits for">
      <ul>
        {waits.map((w, i) => (
          <li key={`${w.plan} ${i}`}>
            <Link to={`/plans/${w.plan}`}>{w.summary || w.operation}</Link>: {w.reason} (
            {w.mine ? 'you end it' : `ended by ${w.who ?? (w.owner === 'person' ? 'another person' : w.owner)}`}
            {w.since && (
              <>
                , since <Time at={w.since} />
              </>
            )}
            )
          </li>
        ))}
      </ul>
    </Alert>
  )
}
