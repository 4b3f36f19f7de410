import { Card, CardBody, CardTitle, Content, Progress } from '@patternfly/react-core'
import { Table, Tbody, Th, Thead } from '@patternfly/react-table'
import { memo, useMemo } from 'react'
import { Link, useParams } from 'react-router'
import { api, json, list } from '../api/client'
import { acts, useMe } from '../app/me'
import {
  ended,
  matrixOf,
  moving,
  phaseOf,
  share,
  timelineOf,
  troubled,
  wholeCluster,
  type Matrix,
  type Plan,
  type Step,
} from '../plan/plan'
import { Td, Tr } from '../ui/cells'
import { ChoiceFilter, FilterBar, TextFilter } from '../ui/filters'
import { Answer, Facts, Nothing, Page } from '../ui/page'
import { More } from '../ui/more'
import { PageTabs } from '../ui/tabs'
import { Comparison } from './comparison'
import { Effects } from './effects'
import { PlanDrains } from './planDrains'
import { RowLink } from '../ui/rowLink'
import { subjectPath } from './planTable'
import { Status } from '../ui/status'
import { duration, Time, useNow } from '../ui/time'
import { useFilters } from '../ui/url'
import { Agree, PlanActions } from './planActions'
import { Alert } from '../ui/alert'

const tabs = [
  ['summary', 'Summary'],
  ['nodes', 'Nodes'],
  ['timeline', 'Timeline'],
  ['steps', 'Steps'],
  ['documents', 'Documents'],
  ['events', 'Events'],
] as const

export const stepPath = (plan: string, step: string) => `/plans/${plan}/steps/${encodeURIComponent(step)}`

export default function PlanPage() {
  const { id = '', tab = 'summary' } = useParams()
  const me = useMe()
  const before = useFilters().get('before')
  const asked = api.useQuery('get', '/plans/{id}', { params: { path: { id } } })
  return (
    <Answer of={asked}>
      {(plan) => (
        <Page
          title={plan.summary || plan.operation}
          above={[
            { to: '/plans', text: 'Plans' },
            { to: subjectPath(plan), text: plan.cluster },
          ]}
          beside={<Status of={plan.status} />}
          actions={acts(me) && <PlanActions plan={plan} />}
        >
          <div className="stack">
            <Progress
              value={share(plan)}
              title="Steps"
              label={`${plan.steps_done} of ${plan.steps_total}`}
              variant={plan.status === 'failed' ? 'danger' : plan.status === 'done' ? 'success' : undefined}
            />
            <PageTabs label="Parts of the plan" base={`/plans/${id}`} at={tab} of={tabs} />
            {tab === 'summary' && before !== '' && <Comparison plan={id} before={before} />}
            {tab === 'summary' && <Summary plan={plan} mayAct={acts(me)} />}
            {tab === 'nodes' && <MatrixView plan={plan} />}
            {tab === 'timeline' && <Timeline plan={plan} />}
            {tab === 'steps' && <Steps plan={plan} />}
            {tab === 'documents' && <Models plan={plan} />}
            {tab === 'events' && <Events plan={plan} />}
          </div>
        </Page>
      )}
    </Answer>
  )
}

function Summary({ plan, mayAct }: { plan: Plan; mayAct: boolean }) {
  const steps = list(plan.steps)
  const trouble = troubled(steps)
  const running = steps.filter((s) => s.status === 'running' || s.status === 'undoing')
  const open = plan.status === 'planned' || plan.status === 'approved'
  return (
    <div className="stack">
      {trouble.slice(0, 5).map((s) => (
        <Trouble key={s.id} plan={plan} step={s} />
      ))}
      {trouble.length > 5 && (
        <Link to={`/plans/${plan.id}/steps?status=failed`}>All {trouble.length} steps that need help</Link>
      )}
      {plan.message && trouble.length === 0 && (
        <Alert isInline variant={ended(plan.status) ? 'info' : 'warning'} title={plan.message}>
          {plan.hint}
        </Alert>
      )}
      {list(plan.warnings).map((w) => (
        <Alert key={w} isInline variant="warning" title={w} />
      ))}
      {list(plan.waits).length > 0 && (
        <Card component="section">
          <CardTitle component="h2">What it waits for</CardTitle>
          <CardBody>
            <Table role="table" aria-label="Waits" variant="compact">
              <Thead>
                <Tr>
                  <Th>Reason</Th>
                  <Th>Ended by</Th>
                  <Th>Since</Th>
                  <Th>Until</Th>
                </Tr>
              </Thead>
              <Tbody>
                {list(plan.waits).map((w, i) => (
                  <Tr key={i}>
                    <Td dataLabel="Reason">
                      {w.step ? <Link to={stepPath(plan.id, w.step)}>{w.reason}</Link> : w.reason}
                    </Td>
                    <Td dataLabel="Ended by">{w.owner ?? '–'}</Td>
                    <Td dataLabel="Since">
                      <Time at={w.since} />
                    </Td>
                    <Td dataLabel="Until">
                      <Time at={w.deadline} />
                    </Td>
                  </Tr>
                ))}
              </Tbody>
            </Table>
          </CardBody>
        </Card>
      )}
      {running.length > 0 && (
        <Card component="section">
          <CardTitle component="h2">Runs now</CardTitle>
          <CardBody>
            <ul>
              {running.slice(0, 20).map((s) => (
                <li key={s.id}>
                  <Link to={stepPath(plan.id, s.id)}>{s.title}</Link>, for <Time at={s.started_at} />
                  {s.message && <span className="hint break"> {s.message}</span>}
                </li>
              ))}
            </ul>
            {running.length > 20 && <p>and {running.length - 20} more</p>}
          </CardBody>
        </Card>
      )}
      <Card component="section">
        <CardTitle component="h2">What it does</CardTitle>
        <CardBody className="stack">
          <Effects of={steps.flatMap((one) => list(one.effects))} />
          <Facts
            of={[
              ['Takes about', duration(plan.estimate_seconds)],
              ['Can be started until', open && plan.expires_at && <Time at={plan.expires_at} />],
              [
                'Made',
                <>
                  <Time at={plan.created_at} /> by {plan.created_by}
                </>,
              ],
              ['Started', plan.started_at && <Time at={plan.started_at} />],
              ['Ended', plan.finished_at && <Time at={plan.finished_at} />],
              [
                'Hash',
                <span key="h" className="mono break">
                  {plan.hash}
                </span>,
              ],
              [
                'Id',
                <span key="i" className="mono">
                  {plan.id}
                </span>,
              ],
            ]}
          />
        </CardBody>
      </Card>
      {open && <PlanDrains plan={plan} />}
      {open && (
        <Card component="section">
          <CardTitle component="h2">{plan.status === 'approved' ? 'Start it' : 'Agree to it'}</CardTitle>
          <CardBody>
            {mayAct ? (
              <Agree plan={plan} />
            ) : (
              <Content component="p">Someone with the role operator can start it.</Content>
            )}
          </CardBody>
        </Card>
      )}
    </div>
  )
}

// Trouble says what stopped the plan, whether the cluster is safe, and what to do.
function Trouble({ plan, step }: { plan: Plan; step: Step }) {
  return (
    <Alert
      isInline
      variant={step.status === 'parked' ? 'warning' : 'danger'}
      title={`${step.title}: ${step.message ?? step.status}`}
    >
      <Facts
        of={[
          ['What to do', step.hint],
          ['The cluster meanwhile', step.safety],
          ['Node', step.node],
          ['Attempts', `${step.attempt}`],
        ]}
      />
      <Link to={stepPath(plan.id, step.id)}>Open the step and its log</Link>
    </Alert>
  )
}

function MatrixView({ plan }: { plan: Plan }) {
  const filters = useFilters()
  const matrix = useMemo(() => matrixOf(list(plan.steps)), [plan.steps])
  const text = filters.get('node')
  const rows = matrix.rows.filter((r) => r.node.includes(text))
  return (
    <>
      <FilterBar>
        <TextFilter filters={filters} name="node" label="Node" />
      </FilterBar>
      <More of={rows} size={100}>
        {(some) => (
          <div className="wide" tabIndex={0} role="region" aria-label="Nodes and phases">
            <table className="matrix">
              <thead>
                <tr>
                  <th scope="col">node</th>
                  {matrix.phases.map((p) => (
                    <th key={p} scope="col">
                      {p}
                    </th>
                  ))}
                </tr>
              </thead>
              <tbody>
                {some.map((r) => (
                  <MatrixRow key={r.node} plan={plan.id} phases={matrix.phases} of={r} />
                ))}
              </tbody>
            </table>
          </div>
        )}
      </More>
    </>
  )
}

interface MatrixRowProps {
  plan: string
  phases: string[]
  of: Matrix['rows'][number]
}

// MatrixRow is drawn again only when the steps have changed.
const MatrixRow = memo(function MatrixRow({ plan, phases, of: row }: MatrixRowProps) {
  return (
    <tr>
      <th scope="row">{row.node === wholeCluster ? 'the cluster' : row.node}</th>
      {phases.map((p, i) => {
        const c = row.cells[i]
        return (
          <td key={p}>
            {c && (
              <RowLink to={stepPath(plan, c.step)} aria-label={`${row.node}, ${p}: ${c.status}`}>
                <Status of={c.status} word={c.total > 1 ? `${c.done}/${c.total}` : c.status} />
              </RowLink>
            )}
          </td>
        )
      })}
    </tr>
  )
})

function Timeline({ plan }: { plan: Plan }) {
  const now = useNow()
  const bars = timelineOf(plan, list(plan.steps), now)
  if (bars.length === 0) return <Nothing title="Nothing has run yet." />
  return (
    <More of={bars} size={100}>
      {(some) => (
        <Table role="table" aria-label="Timeline" variant="compact">
          <Thead>
            <Tr>
              <Th width={30}>Step</Th>
              <Th>Status</Th>
              <Th>After</Th>
              <Th>Took</Th>
              <Th width={40} screenReaderText="Picture" />
            </Tr>
          </Thead>
          <Tbody>
            {some.map((b) => (
              <Tr key={b.step.id}>
                <Td dataLabel="Step">
                  <RowLink to={stepPath(plan.id, b.step.id)}>{b.step.title}</RowLink>
                </Td>
                <Td dataLabel="Status">
                  <Status of={b.step.status} />
                </Td>
                <Td dataLabel="After">{duration(b.after)}</Td>
                <Td dataLabel="Took">{duration(b.took)}</Td>
                <Td aria-hidden="true">
                  <div className="lane">
                    <div
                      className="bar"
                      data-status={b.step.status}
                      style={{ insetInlineStart: `${b.from}%`, inlineSize: `${b.width}%` }}
                    />
                  </div>
                </Td>
              </Tr>
            ))}
          </Tbody>
        </Table>
      )}
    </More>
  )
}

function Steps({ plan }: { plan: Plan }) {
  const filters = useFilters()
  const status = filters.get('status')
  const text = filters.get('q').toLowerCase()
  const steps = list(plan.steps)
  const shown = steps.filter(
    (s) =>
      (status === '' || s.status === status) &&
      (text === '' || `${s.title} ${s.id} ${s.node ?? ''}`.toLowerCase().includes(text)),
  )
  const statuses = [...new Set(steps.map((s) => s.status))]
  return (
    <>
      <FilterBar>
        <TextFilter filters={filters} name="q" label="Step or node" />
        <ChoiceFilter filters={filters} name="status" label="Status" options={statuses.map((s) => [s, s])} />
      </FilterBar>
      <More of={shown} size={100}>
        {(some) => (
          <Table role="table" aria-label="Steps" variant="compact">
            <Thead>
              <Tr>
                <Th>Step</Th>
                <Th>Node</Th>
                <Th>Phase</Th>
                <Th>Status</Th>
                <Th>Attempt</Th>
                <Th>Took</Th>
              </Tr>
            </Thead>
            <Tbody>
              {some.map((s) => (
                <Tr key={s.id}>
                  <Td dataLabel="Step">
                    <RowLink to={stepPath(plan.id, s.id)}>{s.title}</RowLink>
                  </Td>
                  <Td dataLabel="Node">{s.node ?? '–'}</Td>
                  <Td dataLabel="Phase">{phaseOf(s)}</Td>
                  <Td dataLabel="Status">
                    <Status of={s.status} />
                    {s.message && <div className="hint break">{s.message}</div>}
                  </Td>
                  <Td dataLabel="Attempt">{s.attempt || '–'}</Td>
                  <Td dataLabel="Took">{took(s)}</Td>
                </Tr>
              ))}
            </Tbody>
          </Table>
        )}
      </More>
    </>
  )
}

function took(s: Step): string {
  if (s.started_at && s.finished_at) return duration((Date.parse(s.finished_at) - Date.parse(s.started_at)) / 1000)
  return `about ${duration(s.estimate_seconds)}`
}

function Models({ plan }: { plan: Plan }) {
  const models = list(plan.models)
  if (models.length === 0) return <Nothing title="It was made from no documents." />
  return (
    <Table role="table" aria-label="Documents" variant="compact">
      <Thead>
        <Tr>
          <Th>Document</Th>
          <Th>Generation that the plan has</Th>
        </Tr>
      </Thead>
      <Tbody>
        {models.map((m) => (
          <Tr key={`${m.kind}/${m.name}`}>
            <Td dataLabel="Document">
              <Link to={`/documents/${m.kind}/${m.name}`}>
                {m.kind}/{m.name}
              </Link>
            </Td>
            <Td dataLabel="Generation">{m.generation}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}

const eventsShown = 200

function Events({ plan }: { plan: Plan }) {
  const filters = useFilters()
  const step = filters.get('step') || undefined
  const after = Number(filters.get('after') || Math.max(0, plan.last_event - eventsShown))
  const asked = api.useQuery(
    'get',
    '/plans/{id}/events',
    {
      params: { path: { id: plan.id }, query: { after, limit: eventsShown, step } },
    },
    { refetchInterval: moving.includes(plan.status) ? 2000 : false },
  )
  return (
    <Answer of={asked}>
      {(answer) => {
        const events = json(answer)
        return (
          <>
            <FilterBar>
              <TextFilter filters={filters} name="step" label="Id of a step" />
            </FilterBar>
            {after > 0 && (
              <button
                type="button"
                className="pf-v6-c-button pf-m-link"
                onClick={() => filters.set({ after: String(Math.max(0, after - eventsShown)) })}
              >
                Earlier events
              </button>
            )}
            {list(events.items).length === 0 ? (
              <Nothing title="There is no event here." />
            ) : (
              <Table role="table" aria-label="Events" variant="compact">
                <Thead>
                  <Tr>
                    <Th>Event</Th>
                    <Th>When</Th>
                    <Th>What</Th>
                    <Th>Step</Th>
                    <Th>By</Th>
                  </Tr>
                </Thead>
                <Tbody>
                  {list(events.items).map((e) => (
                    <Tr key={e.seq}>
                      <Td dataLabel="Event">{e.seq}</Td>
                      <Td dataLabel="When">
                        <Time at={e.at} />
                      </Td>
                      <Td dataLabel="What">
                        {e.kind.replaceAll('_', ' ')}
                        {e.message && <div className="hint break">{e.message}</div>}
                      </Td>
                      <Td dataLabel="Step">
                        {e.step ? <RowLink to={stepPath(plan.id, e.step)}>{e.step}</RowLink> : '–'}
                      </Td>
                      <Td dataLabel="By">{e.by ?? '–'}</Td>
                    </Tr>
                  ))}
                </Tbody>
              </Table>
            )}
            {events.last < plan.last_event && after + eventsShown < plan.last_event && (
              <button
                type="button"
                className="pf-v6-c-button pf-m-link"
                onClick={() => filters.set({ after: String(events.last) })}
              >
                Later events
              </button>
            )}
          </>
        )
      }}
    </Answer>
  )
}
