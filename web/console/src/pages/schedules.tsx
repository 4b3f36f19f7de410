import { Button, Modal, ModalBody, ModalHeader } from '@patternfly/react-core'
import { ActionsColumn, Table, Tbody, Thead } from '@patternfly/react-table'
import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'react-router'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { acts, edits, useMe } from '../app/me'
import { Td, Th, Tr } from '../ui/cells'
import { atOnce, quoted } from '../ui/command'
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
                      {list(one.runs)[0] ? <Run of={list(one.runs)[0] as Schemas['ScheduleRun']} /> : '–'}
                      {list(one.runs).length > 0 && <History of={one.name} />}
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

function Run({ of: run }: { of: Schemas['ScheduleRun'] }) {
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
      {run.hint && <div className="hint break">{run.hint}</div>}
    </>
  )
}

// History is the last 50 runs of a schedule, with the slots that it missed.
function History({ of }: { of: string }) {
  const [open, setOpen] = useState(false)
  return (
    <>
      <div>
        <Button variant="link" isInline onClick={() => setOpen(true)} aria-label={`Runs of ${of}`}>
          All runs
        </Button>
      </div>
      {open && <Runs of={of} close={() => setOpen(false)} />}
    </>
  )
}

function Runs({ of, close }: { of: string; close: () => void }) {
  const asked = api.useQuery('get', '/schedules/{name}', { params: { path: { name: of } } }, { refetchInterval: 5_000 })
  return (
    <Modal isOpen variant="large" onClose={close} aria-labelledby="runs-title">
      <ModalHeader title={`Runs of ${of}`} labelId="runs-title" />
      <ModalBody tabIndex={0}>
        <Answer of={asked}>
          {(s) => (
            <Table role="table" aria-label={`Runs of ${of}`} variant="compact">
              <Thead>
                <Tr>
                  <Th>Due</Th>
                  <Th>Asked by</Th>
                  <Th>Run</Th>
                  <Th>Took</Th>
                </Tr>
              </Thead>
              <Tbody>
                {list(s.runs).map((run) => (
                  <Tr key={`${run.slot} ${run.attempt}`}>
                    <Td dataLabel="Due">
                      <Time at={run.slot} />
                      {run.attempt > 1 && <div className="hint">attempt {run.attempt}</div>}
                    </Td>
                    <Td dataLabel="Asked by" className="break">
                      {run.by ?? 'the schedule'}
                    </Td>
                    <Td dataLabel="Run">
                      <Run of={run} />
                      {run.missed !== undefined && run.missed > 0 && (
                        <div className="hint">
                          {run.missed === 1 ? '1 slot was missed.' : `${run.missed} slots were missed.`}
                        </div>
                      )}
                    </Td>
                    <Td dataLabel="Took">{took(run)}</Td>
                  </Tr>
                ))}
              </Tbody>
            </Table>
          )}
        </Answer>
      </ModalBody>
    </Modal>
  )
}

function took({ started_at, finished_at }: Schemas['ScheduleRun']): string {
  if (!started_at || !finished_at) return '–'
  return `${Math.round((new Date(finished_at).getTime() - new Date(started_at).getTime()) / 1000)} s`
}

function Verbs({ of, act }: { of: Schemas['Schedule']; act: (what: Promise<unknown>) => void }) {
  const path = { params: { path: { name: of.name } } }
  return (
    <ActionsColumn
      aria-label={`Actions on ${of.name}`}
      items={[
        atOnce('Run now', `directorctl schedules run ${quoted(of.name)}`, () =>
          act(must(client.POST('/schedules/{name}/run', path))),
        ),
        of.suspended
          ? atOnce('Resume', `directorctl schedules resume ${quoted(of.name)}`, () =>
              act(must(client.POST('/schedules/{name}/resume', path))),
            )
          : atOnce('Suspend', `directorctl schedules suspend ${quoted(of.name)}`, () =>
              act(must(client.POST('/schedules/{name}/suspend', path))),
            ),
      ]}
      popperProps={{ position: 'right' }}
    />
  )
}
