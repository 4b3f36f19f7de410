import { Button, TextInput, ToolbarItem } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { useState } from 'react'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { useAct } from '../ui/act'
import { Td, Th, Tr } from '../ui/cells'
import { Command } from '../ui/command'
import { ChoiceFilter, FilterBar, Pages, TextFilter } from '../ui/filters'
import { Actions } from '../ui/actions'
import { Alert } from '../ui/alert'
import { Diff } from '../ui/diff'
import { Answer, Nothing, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { Status } from '../ui/status'
import { Time } from '../ui/time'
import { useFilters } from '../ui/url'

// Activity is who did what: the audit trail.
export default function Activity() {
  const filters = useFilters()
  const outcome = filters.get('outcome')
  const cluster = filters.get('cluster')
  const from = moment(filters.get('from'))
  const until = moment(filters.get('until'))
  const asked = api.useQuery('get', '/audit', {
    params: {
      query: {
        actor: filters.get('actor') || undefined,
        action: filters.get('action') || undefined,
        object: filters.get('object') || (cluster && `Cluster/${cluster}`) || undefined,
        from,
        until,
        continue: filters.get('continue') || undefined,
        limit: 100,
        outcome: outcome === 'ok' || outcome === 'refused' || outcome === 'failed' ? outcome : undefined,
      },
    },
  })
  return (
    <Page title="Activity" actions={<Trail from={from} until={until} />}>
      <FilterBar>
        <TextFilter filters={filters} name="actor" label="User or schedule" />
        <TextFilter filters={filters} name="action" label="Action, such as apply" />
        <TextFilter filters={filters} name="object" label="Object: Kind/name" />
        <TextFilter filters={filters} name="cluster" label="Cluster" />
        <MomentFilter filters={filters} name="from" label="From" />
        <MomentFilter filters={filters} name="until" label="Until" />
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
                        {(e.count ?? 0) > 1 && ` (${e.count} times)`}
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

// moment is a time of this place, as a field has it, as the director reads it; undefined if it is none.
function moment(text: string): string | undefined {
  const at = new Date(text)
  return text === '' || Number.isNaN(at.getTime()) ? undefined : at.toISOString()
}

function MomentFilter({
  filters,
  name,
  label,
}: {
  filters: ReturnType<typeof useFilters>
  name: string
  label: string
}) {
  return (
    <ToolbarItem>
      <TextInput
        type="datetime-local"
        aria-label={label}
        title={label}
        value={filters.get(name)}
        onChange={(_, v) => filters.set({ [name]: v })}
      />
    </ToolbarItem>
  )
}

// Trail has the trail verified, and gives it out as a file that can be verified without the director.
function Trail({ from, until }: { from: string | undefined; until: string | undefined }) {
  const { busy, failed, act } = useAct()
  const [result, setResult] = useState<Schemas['AuditVerification']>()
  const verify = () =>
    act(async () => {
      setResult(undefined)
      setResult(await must(client.POST('/audit/verify', {})))
    })
  const wanted = new URLSearchParams({ ...(from && { from }), ...(until && { until }) })
  return (
    <>
      <Actions>
        <Button isLoading={busy} isDisabled={busy} onClick={() => void verify()}>
          Verify the trail
        </Button>
        <Button variant="secondary" component="a" href={`/api/v1/audit/export?${wanted}`} download="audit.jsonl">
          Export
        </Button>
      </Actions>
      <Command>directorctl audit verify</Command>
      {failed !== undefined && <ProblemAlert of={failed} />}
      {result && (
        <Alert
          isInline
          variant={result.good ? 'success' : 'danger'}
          role="status"
          title={
            result.good
              ? `The trail is as it was written: ${result.entries} entries, ${result.first} to ${result.last}.`
              : `Entry ${result.bad ?? ''} is not as it was written.`
          }
        >
          {result.good ? `Entries up to ${result.signed} are signed.` : result.why}
          {result.before > 0 && ` ${result.before} entries are from before the chain: nothing proves them.`}
        </Alert>
      )}
    </>
  )
}
