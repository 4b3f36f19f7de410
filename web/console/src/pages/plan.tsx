import { Card, CardBody, CardTitle, Content, Progress } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { Link, useParams } from 'react-router'
import { list } from '../api/client'
import { acts, useMe } from '../app/me'
import { usePlanEffects, usePlanHead, useSteps } from '../plan/asked'
import { ended, share, stepPath, troubled, type Plan, type Step } from '../plan/plan'
import { Alert } from '../ui/alert'
import { Td, Th, Tr } from '../ui/cells'
import { Answer, Facts, Page } from '../ui/page'
import { Status } from '../ui/status'
import { PageTabs } from '../ui/tabs'
import { duration, Time } from '../ui/time'
import { useFilters } from '../ui/url'
import { Comparison } from './comparison'
import { Effects } from './effects'
import { Agree, PlanActions } from './planActions'
import { PlanDocuments } from './planDocuments'
import { PlanDrains } from './planDrains'
import { PlanEvents } from './planEvents'
import { PlanMatrix } from './planMatrix'
import { PlanSteps, PlanTimeline } from './planSteps'
import { subjectPath } from './planTable'

const tabs = [
  ['summary', 'Summary'],
  ['nodes', 'Nodes'],
  ['timeline', 'Timeline'],
  ['steps', 'Steps'],
  ['documents', 'Documents'],
  ['events', 'Events'],
] as const

export default function PlanPage() {
  const { id = '', tab = 'summary' } = useParams()
  const me = useMe()
  const before = useFilters().get('before')
  const asked = usePlanHead(id)
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
            {tab === 'nodes' && <PlanMatrix plan={id} />}
            {tab === 'timeline' && <PlanTimeline plan={plan} />}
            {tab === 'steps' && <PlanSteps plan={id} />}
            {tab === 'documents' && <PlanDocuments plan={plan} />}
            {tab === 'events' && <PlanEvents plan={plan} />}
          </div>
        </Page>
      )}
    </Answer>
  )
}

function Summary({ plan, mayAct }: { plan: Plan; mayAct: boolean }) {
  const open = plan.status === 'planned' || plan.status === 'approved'
  const effects = usePlanEffects(plan.id)
  const asked = useSteps(plan.id, { status: troubled, limit: 5 }, !open)
  const trouble = list(asked.data?.items)
  return (
    <div className="stack">
      {trouble.map((s) => (
        <Trouble key={s.id} plan={plan} step={s} />
      ))}
      {asked.data && asked.data.total > trouble.length && (
        <Link to={`/plans/${plan.id}/steps?status=${troubled.join(',')}`}>
          All {asked.data.total} steps that need help
        </Link>
      )}
      {plan.message && trouble.length === 0 && !asked.isLoading && (
        <Alert isInline variant={ended(plan.status) ? 'info' : 'warning'} title={plan.message}>
          {plan.hint}
        </Alert>
      )}
      {list(plan.warnings).map((w) => (
        <Alert key={w} isInline variant="warning" title={w} />
      ))}
      <Waits plan={plan} />
      <RunsNow plan={plan} />
      <Card component="section">
        <CardTitle component="h2">What it does</CardTitle>
        <CardBody className="stack">
          <Answer of={effects}>{(e) => <Effects of={e.items} plan={plan.id} />}</Answer>
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

function Waits({ plan }: { plan: Plan }) {
  if (list(plan.waits).length === 0) return null
  return (
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
                <Td dataLabel="Reason">{w.step ? <Link to={stepPath(plan.id, w.step)}>{w.reason}</Link> : w.reason}</Td>
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
  )
}

function RunsNow({ plan }: { plan: Plan }) {
  const may = plan.started_at !== undefined && !ended(plan.status)
  const running = useSteps(plan.id, { status: ['running', 'undoing'], limit: 20 }, may).data
  if (!may || !running || running.total === 0) return null
  return (
    <Card component="section">
      <CardTitle component="h2">Runs now</CardTitle>
      <CardBody>
        <ul>
          {list(running.items).map((s) => (
            <li key={s.id}>
              <Link to={stepPath(plan.id, s.id)}>{s.title}</Link>, for <Time at={s.started_at} />
              {s.message && <span className="hint break"> {s.message}</span>}
            </li>
          ))}
        </ul>
        {running.total > running.items.length && <p>and {running.total - running.items.length} more</p>}
      </CardBody>
    </Card>
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
