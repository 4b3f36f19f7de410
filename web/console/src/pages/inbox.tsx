import { Card, CardBody, CardTitle, Content } from '@patternfly/react-core'
import { Table, Tbody, Th, Thead } from '@patternfly/react-table'
import type { ReactNode } from 'react'
import { Link } from 'react-router'
import { api, list, type Schemas } from '../api/client'
import { edits, useMe } from '../app/me'
import { moving } from '../plan/plan'
import { Td, Tr } from '../ui/cells'
import { LinkButton } from '../ui/linkButton'
import { Answer, Nothing, Page } from '../ui/page'
import { Status } from '../ui/status'
import { Time } from '../ui/time'
import { Questions } from './hooks'
import { Ill } from './ill'
import { Notice } from './notice'
import { PlanTable } from './planTable'

const few = 50
const soon = { refetchInterval: 15_000 }

// Inbox is what waits for the user, what runs, and what is ill.
export default function Inbox() {
  const me = useMe()
  const runner = me.can.includes('run')
  const runs = api.useQuery('get', '/plans', {
    params: { query: { status: moving, limit: few, sort: '-created_at' } },
  })
  const summary = api.useQuery('get', '/summary', {}, soon)
  return (
    <Page title="Inbox">
      <div className="stack">
        <Notice />
        {summary.data && <Counts of={summary.data} />}
        {summary.data?.clusters === 0 && <First mayAct={edits(me)} />}
        <Section title="Waits for you">
          <Waits mine />
          {runner && <Campaigns />}
          {runner && <Questions />}
        </Section>
        <Others counted={summary.data} runner={runner} />
        <Section title="Runs now">
          <Answer of={runs}>
            {(p) =>
              list(p.items).length === 0 ? (
                <Nothing title="Nothing runs." />
              ) : (
                <>
                  <PlanTable label="Plans that run" plans={list(p.items)} />
                  {p.continue && <Link to={`/plans?status=${moving.join(',')}`}>All that run</Link>}
                </>
              )
            }
          </Answer>
        </Section>
        <Ill summary={summary.data} />
      </div>
    </Page>
  )
}

function Section({ title, children }: { title: string; children: ReactNode }) {
  return (
    <Card component="section">
      <CardTitle component="h2">{title}</CardTitle>
      <CardBody>{children}</CardBody>
    </Card>
  )
}

// Counts is what there is, each number a way to it.
function Counts({ of }: { of: Schemas['Summary'] }) {
  const parts: [to: string, text: string][] = [
    ['/clusters', of.clusters === 1 ? '1 cluster' : `${of.clusters} clusters`],
    ['/nodes', of.nodes === 1 ? '1 node' : `${of.nodes} nodes`],
  ]
  if (of.problems > 0) parts.push(['/nodes?problem=true', `${of.problems} with a problem`])
  return (
    <p aria-label="Counts">
      {parts.map(([to, text], i) => (
        <span key={to}>
          {i > 0 && ', '}
          <Link to={to}>{text}</Link>
        </span>
      ))}
    </p>
  )
}

// Waits are what plans wait for a person to do: what the user may do, or what is left to others.
function Waits({ mine }: { mine?: boolean }) {
  const asked = api.useQuery(
    'get',
    '/waits',
    { params: { query: { owner: 'person', mine, limit: mine ? few : 1000 } } },
    soon,
  )
  return (
    <Answer of={asked}>
      {(w) => {
        const items = list(w.items).filter((one) => one.mine === (mine === true))
        if (items.length === 0) return <Nothing title={mine ? 'Nothing waits for you.' : 'Nothing waits for others.'} />
        return (
          <>
            <WaitTable label={mine ? 'Plans that wait' : 'Plans that wait for others'} waits={items.slice(0, few)} />
            {items.length < w.total && mine && <p className="hint">{`${items.length} of ${w.total}`}</p>}
          </>
        )
      }}
    </Answer>
  )
}

function WaitTable({ label, waits }: { label: string; waits: Schemas['PlanWait'][] }) {
  return (
    <Table role="table" aria-label={label} variant="compact">
      <Thead>
        <Tr>
          <Th width={30}>Plan</Th>
          <Th modifier="fitContent">Cluster</Th>
          <Th width={40}>Why</Th>
          <Th modifier="fitContent">Since</Th>
          <Th modifier="fitContent">Until</Th>
        </Tr>
      </Thead>
      <Tbody>
        {waits.map((w, i) => (
          <Tr key={`${w.plan} ${i}`}>
            <Td dataLabel="Plan">
              <Link to={`/plans/${w.plan}`} className="word">
                {w.summary || w.operation}
              </Link>
            </Td>
            <Td dataLabel="Cluster">
              <Link to={`/clusters/${w.cluster}`} className="word">
                {w.cluster}
              </Link>
            </Td>
            <Td dataLabel="Why">
              <Status of={w.status} />
              <div className="hint break">{w.reason}</div>
            </Td>
            <Td dataLabel="Since">{w.since ? <Time at={w.since} /> : '–'}</Td>
            <Td dataLabel="Until">{w.until ? <Time at={w.until} /> : '–'}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}

// Campaigns are those whose next wave waits for someone to agree, or that were paused. There is nothing to see without
// one.
function Campaigns() {
  const asked = api.useQuery('get', '/campaigns', {}, soon)
  const waiting = list(asked.data?.items).filter((c) => c.status === 'waiting' || c.status === 'paused')
  if (waiting.length === 0) return null
  return (
    <Table role="table" aria-label="Campaigns that wait" variant="compact">
      <Thead>
        <Tr>
          <Th width={30}>Campaign</Th>
          <Th>Why</Th>
        </Tr>
      </Thead>
      <Tbody>
        {waiting.map((c) => (
          <Tr key={c.id}>
            <Td dataLabel="Campaign">
              <Link to={`/campaigns/${c.id}`} className="break">
                {c.name}
              </Link>
            </Td>
            <Td dataLabel="Why">
              {c.status === 'waiting' ? `Wave ${c.wave} waits for agreement.` : `It is paused. ${c.reason ?? ''}`}
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}

// Others is what only another person can do. It shows nothing while there is nothing.
function Others({ counted, runner }: { counted?: Schemas['Summary']; runner: boolean }) {
  const waits = (counted?.waits.person ?? 0) > (counted?.mine ?? 0)
  if (!waits && runner) return null
  return (
    <Section title="Waits for others">
      <Waits />
      {!runner && <Campaigns />}
      {!runner && <Questions />}
    </Section>
  )
}

// First leads to the first cluster.
function First({ mayAct }: { mayAct: boolean }) {
  return (
    <Card component="section">
      <CardTitle component="h2">There is no cluster yet</CardTitle>
      <CardBody>
        {mayAct ? (
          <div className="stack">
            <Content component="p">
              A cluster needs a hypervisor, a network, an image, and a few words about itself. You are led through them,
              each is checked while you type, and nothing happens before you start a plan.
            </Content>
            <LinkButton to="/clusters/new">Set up the first cluster</LinkButton>
            <Content component="p">
              The{' '}
              <a href="/docs/" target="_blank">
                manual
              </a>{' '}
              is on this director as well.
            </Content>
          </div>
        ) : (
          <Content component="p">
            No one has made a cluster yet, or none is yours to see. An administrator can grant you one.
          </Content>
        )}
      </CardBody>
    </Card>
  )
}
