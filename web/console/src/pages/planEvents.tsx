import { Table, Tbody, Thead } from '@patternfly/react-table'
import { keepPreviousData } from '@tanstack/react-query'
import { memo } from 'react'
import { api, json, list, type Schemas } from '../api/client'
import { moving, stepPath, type Plan } from '../plan/plan'
import { Td, Th, Tr } from '../ui/cells'
import { FilterBar, TextFilter } from '../ui/filters'
import { Gradually } from '../ui/gradually'
import { Answer, Nothing } from '../ui/page'
import { RowLink } from '../ui/rowLink'
import { Time } from '../ui/time'
import { useFilters } from '../ui/url'

const eventsShown = 200

export function PlanEvents({ plan }: { plan: Plan }) {
  const filters = useFilters()
  const step = filters.get('step') || undefined
  const after = Number(filters.get('after') || Math.max(0, plan.last_event - eventsShown))
  const asked = api.useQuery(
    'get',
    '/plans/{id}/events',
    {
      params: { path: { id: plan.id }, query: { after, limit: eventsShown, step } },
    },
    {
      refetchInterval: moving.includes(plan.status) ? 2000 : false,
      placeholderData: keepPreviousData, // a plan that runs has a new last event all the time
    },
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
                  <Gradually of={list(events.items)} name={(e) => `${e.seq}`}>
                    {(e) => <Row plan={plan.id} of={e} />}
                  </Gradually>
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

// Row is drawn again only when it is of another event.
const Row = memo(
  function Row({ plan, of: e }: { plan: string; of: Schemas['Event'] }) {
    return (
      <Tr>
        <Td dataLabel="Event">{e.seq}</Td>
        <Td dataLabel="When">
          <Time at={e.at} />
        </Td>
        <Td dataLabel="What">
          {e.kind.replaceAll('_', ' ')}
          {e.message && <div className="hint break">{e.message}</div>}
        </Td>
        <Td dataLabel="Step">{e.step ? <RowLink to={stepPath(plan, e.step)}>{e.step}</RowLink> : '–'}</Td>
        <Td dataLabel="By">{e.by ?? '–'}</Td>
      </Tr>
    )
  },
  (a, b) => a.plan === b.plan && a.of.seq === b.of.seq, // an event does not change
)
