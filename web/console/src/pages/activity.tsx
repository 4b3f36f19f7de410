import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table'
import { api, list } from '../api/client'
import { ChoiceFilter, FilterBar, Pages, TextFilter } from '../ui/filters'
import { Diff } from '../ui/diff'
import { Answer, Nothing, Page } from '../ui/page'
import { Status } from '../ui/status'
import { Time } from '../ui/time'
import { useFilters } from '../ui/url'

// Activity is who did what: the audit trail.
export default function Activity() {
  const filters = useFilters()
  const outcome = filters.get('outcome')
  const asked = api.useQuery('get', '/audit', {
    params: {
      query: {
        actor: filters.get('actor') || undefined,
        action: filters.get('action') || undefined,
        object: filters.get('object') || undefined,
        continue: filters.get('continue') || undefined,
        limit: 100,
        outcome: outcome === 'ok' || outcome === 'refused' || outcome === 'failed' ? outcome : undefined,
      },
    },
  })
  return (
    <Page title="Activity">
      <FilterBar>
        <TextFilter filters={filters} name="actor" label="User or schedule" />
        <TextFilter filters={filters} name="action" label="Action, such as apply" />
        <TextFilter filters={filters} name="object" label="Object: Kind/name" />
        <ChoiceFilter
          filters={filters}
          name="outcome"
          label="Outcome"
          options={[
            ['ok', 'ok'],
            ['refused', 'refused'],
            ['failed', 'failed'],
          ]}
        />
      </FilterBar>
      <Answer of={asked}>
        {(trail) => (
          <>
            {list(trail.items).length === 0 ? (
              <Nothing title="Nothing like this has happened." />
            ) : (
              <Table role="table" aria-label="Activity" variant="compact">
                <Thead>
                  <Tr>
                    <Th>When</Th>
                    <Th>Who</Th>
                    <Th>What</Th>
                    <Th>Object</Th>
                    <Th>Outcome</Th>
                    <Th>From</Th>
                  </Tr>
                </Thead>
                <Tbody>
                  {list(trail.items).map((e) => (
                    <Tr key={e.id}>
                      <Td dataLabel="When">
                        <Time at={e.at} />
                      </Td>
                      <Td dataLabel="Who" className="break">
                        {e.actor}
                      </Td>
                      <Td dataLabel="What">
                        {e.action}
                        {e.count ? ` (${e.count} times)` : ''}
                      </Td>
                      <Td dataLabel="Object" className="break">
                        {e.object}
                        {e.diff && (
                          <details>
                            <summary>What changed</summary>
                            <Diff of={e.diff} />
                          </details>
                        )}
                      </Td>
                      <Td dataLabel="Outcome">
                        {e.outcome && <Status of={e.outcome} />}
                        {e.problem && <div className="hint break">{e.problem}</div>}
                      </Td>
                      <Td dataLabel="From">{e.source ?? '–'}</Td>
                    </Tr>
                  ))}
                </Tbody>
              </Table>
            )}
            <Pages filters={filters} next={trail.continue} />
          </>
        )}
      </Answer>
    </Page>
  )
}
