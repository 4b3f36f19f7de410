import { ActionsColumn, Table, Tbody, Thead } from '@patternfly/react-table'
import { Card, CardBody, CardTitle } from '@patternfly/react-core'
import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'react-router'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { acts, edits, useMe } from '../app/me'
import { Ask } from '../ui/ask'
import { Td, Th, Tr } from '../ui/cells'
import { Command, quoted } from '../ui/command'
import { Pages } from '../ui/filters'
import { LinkButton } from '../ui/linkButton'
import { Answer, Nothing, Page } from '../ui/page'
import { Status } from '../ui/status'
import { Time } from '../ui/time'
import { useFilters } from '../ui/url'

type Message = Schemas['NotificationMessage']

const often = 10_000

// Notifications are who is told what, and what they were told, the newest first.
export default function Notifications() {
  const me = useMe()
  const filters = useFilters()
  const [tested, setTested] = useState<string>()
  const all = api.useQuery('get', '/notifications', {}, { refetchInterval: often })
  const told = api.useQuery(
    'get',
    '/notification-messages',
    { params: { query: { limit: 100, continue: filters.get('continue') || undefined } } },
    { refetchInterval: often },
  )
  return (
    <Page
      title="Notifications"
      actions={edits(me) && <LinkButton to="/apply?template=Notification">New notification</LinkButton>}
    >
      <div className="stack">
        <Card component="section">
          <CardTitle component="h2">Who is told</CardTitle>
          <CardBody>
            <Answer of={all}>
              {(n) =>
                list(n.items).length === 0 ? (
                  <Nothing title="No one is told.">A notification tells people what waits for them.</Nothing>
                ) : (
                  <Table role="table" aria-label="Notifications" variant="compact">
                    <Thead>
                      <Tr>
                        <Th>Name</Th>
                        <Th>To</Th>
                        <Th>About</Th>
                        <Th>State</Th>
                        {acts(me) && <Th screenReaderText="Actions" />}
                      </Tr>
                    </Thead>
                    <Tbody>
                      {list(n.items).map((one) => (
                        <Tr key={one.name}>
                          <Td dataLabel="Name">
                            <Link to={`/documents/Notification/${one.name}`}>{one.name}</Link>
                          </Td>
                          <Td dataLabel="To" className="break">
                            {list(one.to).join(', ')}
                          </Td>
                          <Td dataLabel="About">{list(one.about).join(', ')}</Td>
                          <Td dataLabel="State">
                            {one.gone ? (
                              <Status of="failed" word="gone" />
                            ) : one.quiet_until ? (
                              <>
                                quiet until <Time at={one.quiet_until} />
                              </>
                            ) : (
                              'active'
                            )}
                          </Td>
                          {acts(me) && (
                            <Td isActionCell>
                              <ActionsColumn
                                items={[{ title: 'Send a test', onClick: () => setTested(one.name) }]}
                                popperProps={{ position: 'right' }}
                              />
                            </Td>
                          )}
                        </Tr>
                      ))}
                    </Tbody>
                  </Table>
                )
              }
            </Answer>
          </CardBody>
        </Card>
        <Card component="section">
          <CardTitle component="h2">What was told</CardTitle>
          <CardBody>
            <Answer of={told}>
              {(m) =>
                list(m.items).length === 0 ? (
                  <Nothing title="Nothing was told." />
                ) : (
                  <>
                    <Messages of={list(m.items)} />
                    <Pages filters={filters} next={m.continue} />
                  </>
                )
              }
            </Answer>
          </CardBody>
        </Card>
      </div>
      {tested && <Test name={tested} close={() => setTested(undefined)} />}
    </Page>
  )
}

function Messages({ of }: { of: Message[] }) {
  return (
    <Table role="table" aria-label="Messages" variant="compact">
      <Thead>
        <Tr>
          <Th>Notification</Th>
          <Th>State</Th>
          <Th>Created</Th>
          <Th>What</Th>
        </Tr>
      </Thead>
      <Tbody>
        {of.map((m) => (
          <Tr key={m.id}>
            <Td dataLabel="Notification">{m.notification}</Td>
            <Td dataLabel="State">
              <Status of={m.state} />
              <div className="hint break">{m.problem}</div>
            </Td>
            <Td dataLabel="Created">
              <Time at={m.created_at} />
            </Td>
            <Td dataLabel="What" className="break">
              {m.test
                ? 'a test'
                : list(m.items).map((i) => (
                    <div key={i.path + i.text}>
                      <Link to={i.path}>{i.text}</Link>
                    </div>
                  ))}
              {m.more ? <div className="hint">and {m.more} more</div> : null}
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}

function Test({ name, close }: { name: string; close: () => void }) {
  const queries = useQueryClient()
  const act = () =>
    must(client.POST('/notifications/{name}/test', { params: { path: { name } } })).finally(() =>
      queries.invalidateQueries({ predicate: (q) => String(q.queryKey[1]).startsWith('/notification') }),
    )
  return (
    <Ask title={`Send a test to ${name}?`} verb="Send" act={act} close={close}>
      <p>It is sent at once and once, also in a quiet time. What became of it is in the list of messages.</p>
      <Command>{`directorctl notifications test ${quoted(name)}`}</Command>
    </Ask>
  )
}
