import { Table, Tbody, Thead } from '@patternfly/react-table'
import { memo } from 'react'
import { list } from '../api/client'
import { useSteps } from '../plan/asked'
import { phaseOf, stepPath, timelineOf, troubled, type Plan, type Step } from '../plan/plan'
import { Td, Th, Tr } from '../ui/cells'
import { ChoiceFilter, FilterBar, Pages, TextFilter } from '../ui/filters'
import { Gradually } from '../ui/gradually'
import { LongTable, share } from '../ui/longTable'
import { Answer, Nothing } from '../ui/page'
import { RowLink } from '../ui/rowLink'
import { Status } from '../ui/status'
import { duration, useNow } from '../ui/time'
import { useFilters, words } from '../ui/url'

// PlanTimeline shows what has run, in the order in which it began.
export function PlanTimeline({ plan }: { plan: Plan }) {
  const filters = useFilters()
  const asked = useSteps(plan.id, {
    started: true,
    sort: 'started_at',
    continue: filters.get('continue') || undefined,
    limit: 100,
    fields: ['id', 'title', 'status', 'started_at', 'finished_at'],
  })
  return (
    <Answer of={asked}>
      {(answer) => (
        <>
          <Bars plan={plan} of={list(answer.items)} />
          <Pages filters={filters} next={answer.continue} />
        </>
      )}
    </Answer>
  )
}

function Bars({ plan, of: steps }: { plan: Plan; of: Step[] }) {
  const now = useNow()
  const bars = timelineOf(plan, steps, now)
  if (bars.length === 0) return <Nothing title="Nothing has run yet." />
  return (
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
        <Gradually of={bars} name={(b) => b.step.id}>
          {(b) => (
            <Tr>
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
          )}
        </Gradually>
      </Tbody>
    </Table>
  )
}

// What a row of a step shows.
const fields = [
  'id',
  'title',
  'node',
  'kind',
  'status',
  'message',
  'attempt',
  'started_at',
  'finished_at',
  'estimate_seconds',
]
const statuses: [string, string][] = [
  [troubled.join(','), 'needs help'],
  ...[
    'pending',
    'running',
    'waiting',
    'parked',
    'done',
    'skipped',
    'failed',
    'undo_due',
    'undoing',
    'undone',
    'stuck',
  ].map((s): [string, string] => [s, s.replaceAll('_', ' ')]),
]

// PlanSteps lists the steps of a plan.
export function PlanSteps({ plan }: { plan: string }) {
  const filters = useFilters()
  const status = filters.get('status')
  const asked = useSteps(plan, {
    q: filters.get('q') || undefined,
    status: words(status),
    continue: filters.get('continue') || undefined,
    limit: 100,
    fields,
  })
  return (
    <>
      <FilterBar>
        <TextFilter filters={filters} name="q" label="Step, node or message" />
        <ChoiceFilter filters={filters} name="status" label="Status" options={statuses} />
      </FilterBar>
      <Answer of={asked}>
        {(answer) => (
          <>
            {list(answer.items).length === 0 ? (
              <Nothing title="No step is like this." />
            ) : (
              <>
                <p aria-label="Counts">{answer.total === 1 ? '1 step' : `${answer.total} steps`}</p>
                <Rows plan={plan} of={list(answer.items)} />
              </>
            )}
            <Pages filters={filters} next={answer.continue} />
          </>
        )}
      </Answer>
    </>
  )
}

const columns = `${share(5)} ${share(3)} ${share(2)} ${share(3)} 5rem 6.5rem`

function Rows({ plan, of: steps }: { plan: string; of: Step[] }) {
  return (
    <LongTable label="Steps" columns={columns}>
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
        <Gradually of={steps} name={(s) => s.id}>
          {(s) => <Row plan={plan} of={s} />}
        </Gradually>
      </Tbody>
    </LongTable>
  )
}

// Row is drawn again only when its step has changed.
const Row = memo(function Row({ plan, of: s }: { plan: string; of: Step }) {
  return (
    <Tr>
      <Td dataLabel="Step">
        <RowLink to={stepPath(plan, s.id)}>{s.title}</RowLink>
      </Td>
      <Td dataLabel="Node">{s.node ?? '–'}</Td>
      <Td dataLabel="Phase">{phaseOf(s.kind)}</Td>
      <Td dataLabel="Status">
        <Status of={s.status} />
        {s.message && <div className="hint break">{s.message}</div>}
      </Td>
      <Td dataLabel="Attempt">{s.attempt || '–'}</Td>
      <Td dataLabel="Took">{took(s)}</Td>
    </Tr>
  )
})

function took(s: Step): string {
  if (s.started_at && s.finished_at) return duration((Date.parse(s.finished_at) - Date.parse(s.started_at)) / 1000)
  return `about ${duration(s.estimate_seconds)}`
}
