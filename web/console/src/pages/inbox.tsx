import { Card, CardBody, CardTitle, Content } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import type { ReactNode } from 'react'
import { Link } from 'react-router'
import { api, list, type Schemas } from '../api/client'
import { edits, useMe } from '../app/me'
import { moving, saidOf, stepPath, waiting } from '../plan/plan'
import { Td, Th, Tr } from '../ui/cells'
import { LinkButton } from '../ui/linkButton'
import { Answer, Page } from '../ui/page'
import { Status } from '../ui/status'
import { Time } from '../ui/time'
import { Questions, useQuestions } from './hooks'
import { Ill } from './ill'
import { Notice } from './notice'
import { PlanTable, subjectPath } from './planTable'

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
          <Waits mine also={runner} />
        </Section>
        <Others counted={summary.data} runner={runner} />
        <Section title="Runs now">
          <Answer of={runs}>
            {(p) =>
              list(p.items).length === 0 ? (
                <p className="hint">Nothing runs.</p>
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

// Waits are what plans wait for a person to do: what the user may do, or what is left to others. The campaigns and
// questions that wait are among it where the user is one of those who end them.
function Waits({ mine = false, also }: { mine?: boolean; also: boolean }) {
  const query = { owner: 'person', mine, limit: mine ? few : 1000 } as const
  const asked = api.useQuery('get', '/waits', { params: { query } }, soon)
  const campaigns = useCampaigns(also)
  const questions = useQuestions(also)
  const more = campaigns.length > 0 || list(questions.data?.items).length > 0
  return (
    <div className="stack">
      <Answer of={asked}>
        {(w) => {
          const items = list(w.items).filter((one) => one.mine === mine)
          if (items.length === 0) {
            return more ? null : <p className="hint">Nothing waits for {mine ? 'you' : 'others'}.</p>
          }
          const total = mine ? w.total : items.length
          return (
            <>
              <WaitTable label={mine ? 'Plans that wait' : 'Plans that wait for others'} waits={items.slice(0, few)} />
              {total > few && (
                <p className="hint">
                  {few} of {total}. <Link to={`/plans?status=${waiting.join(',')}`}>All that wait</Link>
                </p>
              )}
            </>
          )
        }}
      </Answer>
      {campaigns.length > 0 && <CampaignTable of={campaigns} />}
      {also && <Questions of={questions} />}
    </div>
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
              <Link to={subjectPath(w)} className="word">
                {w.cluster}
              </Link>
            </Td>
            <Td dataLabel="Why">
              <Why of={w} />
            </Td>
            <Td dataLabel="Since">{w.since ? <Time at={w.since} /> : '–'}</Td>
            <Td dataLabel="Until">{w.until ? <Time at={w.until} /> : '–'}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}

function Why({ of }: { of: Schemas['PlanWait'] }) {
  const { label, more } = saidOf(of)
  return (
    <>
      <Status of={of.status} word={label} />
      <div className="hint break">{more}</div>
      {of.step && (
        <Link to={stepPath(of.plan, of.step)} className="break">
          {of.steps && of.steps > 1 ? `${of.steps} steps, the first ${of.step}` : of.step}
        </Link>
      )}
    </>
  )
}

// useCampaigns returns those whose next wave waits for someone to agree, or that were paused.
function useCampaigns(enabled: boolean): Schemas['Campaign'][] {
  const asked = api.useQuery('get', '/campaigns', {}, { ...soon, enabled })
  return list(asked.data?.items).filter((c) => c.status === 'waiting' || c.status === 'paused')
}

function CampaignTable({ of }: { of: Schemas['Campaign'][] }) {
  return (
    <Table role="table" aria-label="Campaigns that wait" variant="compact">
      <Thead>
        <Tr>
          <Th width={30}>Campaign</Th>
          <Th>Why</Th>
        </Tr>
      </Thead>
      <Tbody>
        {of.map((c) => (
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
      <Waits also={!runner} />
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
