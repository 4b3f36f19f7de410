import { ActionsColumn, Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table'
import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'react-router'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { acts, edits, useMe } from '../app/me'
import { LinkButton } from '../ui/linkButton'
import { Answer, Nothing, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { Status } from '../ui/status'
import { Time } from '../ui/time'

export default function Schedules() {
  const me = useMe()
  const queries = useQueryClient()
  const asked = api.useQuery('get', '/schedules', {}, { refetchInterval: 15_000 })
  const [failed, setFailed] = useState<unknown>()
  const act = (what: Promise<unknown>) => {
    setFailed(undefined)
    what.then(() => queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/schedules' })).catch(setFailed)
  }
  return (
    <Page title="Schedules" actions={edits(me) && <LinkButton to="/apply?template=Schedule">New schedule</LinkButton>}>
      {failed !== undefined && <ProblemAlert of={failed} />}
      <Answer of={asked}>
        {(s) =>
          list(s.items).length === 0 ? (
            <Nothing title="Nothing is scheduled." />
          ) : (
            <Table role="table" aria-label="Schedules" variant="compact">
              <Thead>
                <Tr>
                  <Th>Schedule</Th>
                  <Th>Job</Th>
                  <Th>When</Th>
                  <Th>Next</Th>
                  <Th>Last run</Th>
                  {acts(me) && <Th screenReaderText="Actions" />}
                </Tr>
              </Thead>
              <Tbody>
                {list(s.items).map((one) => (
                  <Tr key={one.name}>
                    <Td dataLabel="Schedule">
                      <Link to={`/documents/Schedule/${one.name}`} className="break">
                        {one.name}
                      </Link>
                    </Td>
                    <Td dataLabel="Job">{one.job}</Td>
                    <Td dataLabel="When">
                      {one.cron} {one.time_zone}
                    </Td>
                    <Td dataLabel="Next">{one.suspended ? <Status of="suspended" /> : <Time at={one.next} />}</Td>
                    <Td dataLabel="Last run">
                      <LastRun of={one} />
                    </Td>
                    {acts(me) && (
                      <Td isActionCell>
                        <Verbs of={one} act={act} />
                      </Td>
                    )}
                  </Tr>
                ))}
              </Tbody>
            </Table>
          )
        }
      </Answer>
    </Page>
  )
}

function LastRun({ of }: { of: Schemas['Schedule'] }) {
  const run = list(of.runs)[0]
  if (!run) return <>–</>
  return (
    <>
      <Status of={run.status} /> <Time at={run.started_at ?? run.slot} />
      {run.plan && (
        <>
          {' '}
          <Link to={`/plans/${run.plan}`}>its plan</Link>
        </>
      )}
      {run.message && <div className="hint break">{run.message}</div>}
    </>
  )
}

function Verbs({ of, act }: { of: Schemas['Schedule']; act: (what: Promise<unknown>) => void }) {
  const path = { params: { path: { name: of.name } } }
  return (
    <ActionsColumn
      items={[
        { title: 'Run now', onClick: () => act(must(client.POST('/schedules/{name}/run', path))) },
        of.suspended
          ? { title: 'Resume', onClick: () => act(must(client.POST('/schedules/{name}/resume', path))) }
          : { title: 'Suspend', onClick: () => act(must(client.POST('/schedules/{name}/suspend', path))) },
      ]}
      popperProps={{ position: 'right' }}
    />
  )
}
