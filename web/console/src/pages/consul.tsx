import { Button, Card, CardBody, CardTitle, Content } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { useQueryClient } from '@tanstack/react-query'
import { Link } from 'react-router'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { acts, edits, useMe } from '../app/me'
import { useAct } from '../ui/act'
import { Actions } from '../ui/actions'
import { Alert } from '../ui/alert'
import { Ask, AskButton } from '../ui/ask'
import { Td, Th, Tr } from '../ui/cells'
import { Command, quoted } from '../ui/command'
import { LinkButton } from '../ui/linkButton'
import { More } from '../ui/more'
import { Answer, Facts, Nothing, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { Status } from '../ui/status'
import { Time } from '../ui/time'
import { Probes } from './probes'

const writers = { director: 'the director', agent: "the node's agent", cluster: 'the cluster' }
const often = 15_000 // as often as the director compares

// Consuls are the datacenters that clusters are registered in, with what is there and what differs.
export default function Consuls() {
  const me = useMe()
  const asked = api.useQuery('get', '/consuls', {}, { refetchInterval: often })
  return (
    <Page
      title="Consul"
      actions={edits(me) && <LinkButton to="/apply?template=Consul">New Consul document</LinkButton>}
    >
      <Answer of={asked}>
        {(c) =>
          list(c.items).length === 0 ? (
            <Nothing title="There is no Consul yet.">
              A Consul document names a datacenter, and clusters name the document in spec.discovery.
            </Nothing>
          ) : (
            <div className="stack">
              {list(c.items).map((one) => (
                <ConsulCard key={one.name} of={one} />
              ))}
            </div>
          )
        }
      </Answer>
    </Page>
  )
}

function ConsulCard({ of }: { of: Schemas['Consul'] }) {
  const me = useMe()
  const { name, state } = of
  return (
    <Card component="section" aria-label={`Consul ${name}`}>
      <CardTitle component="h2">
        <Link to={`/documents/Consul/${name}`}>{name}</Link>
      </CardTitle>
      <CardBody className="stack">
        {state.problem && (
          <Alert isInline variant="warning" title={state.problem}>
            {state.hint}
          </Alert>
        )}
        <Facts
          of={[
            ['Datacenter', of.datacenter],
            ['Domain', of.domain],
            ['Compared', state.success_at ? <Time at={state.success_at} /> : 'never'],
            ['Entries', `${state.wanted}, of which ${state.failing} fail their check`],
          ]}
        />
        {acts(me) && <Repair of={of} />}
        {acts(me) && (
          <>
            <Probes
              kind="Consul"
              name={name}
              ask={() => must(client.POST('/consuls/{name}/test', { params: { path: { name } } }))}
            />
            <Command>{`directorctl consul test ${quoted(name)}`}</Command>
          </>
        )}
        <Services name={name} />
        <Gaps name={name} />
        <Command>{`directorctl consul diff ${quoted(name)}`}</Command>
      </CardBody>
    </Card>
  )
}

// Repair compares now, and asks before removals that are many at once.
function Repair({ of }: { of: Schemas['Consul'] }) {
  const queries = useQueryClient()
  const { busy, failed, act } = useAct()
  const again = () => queries.invalidateQueries({ predicate: (q) => String(q.queryKey[1]).startsWith('/consuls') })
  const sync = (confirm?: string) =>
    must(
      client.POST('/consuls/{name}/sync', { params: { path: { name: of.name } }, body: confirm ? { confirm } : {} }),
    ).finally(() => void again())
  const now = () =>
    act(async () => {
      await sync()
    })
  const held = of.state.held
  return (
    <>
      <Actions>
        <Button variant="secondary" isLoading={busy} isDisabled={busy} onClick={() => void now()}>
          Compare now
        </Button>
        {held && (
          <AskButton
            variant="danger"
            ask={(close) => (
              <Ask
                title={`Remove ${held.count} entries from Consul?`}
                verb="Remove"
                danger
                act={() => sync(held.id)}
                close={close}
              >
                <p>
                  {held.count} of {held.total} entries would go. These are the first:
                </p>
                <ul>
                  {list(held.sample).map((s) => (
                    <li key={s} className="break">
                      {s}
                    </li>
                  ))}
                </ul>
                <Command>{`directorctl consul sync ${quoted(of.name)} --confirm ${quoted(held.id)}`}</Command>
              </Ask>
            )}
          >
            Remove {held.count} entries
          </AskButton>
        )}
      </Actions>
      <Command>{`directorctl consul sync ${quoted(of.name)}`}</Command>
      {failed !== undefined && <ProblemAlert of={failed} />}
    </>
  )
}

function Services({ name }: { name: string }) {
  const asked = api.useQuery(
    'get',
    '/consuls/{name}/services',
    { params: { path: { name } } },
    { refetchInterval: often, retry: false },
  )
  return (
    <section>
      <Content component="h3">Services</Content>
      <Answer of={asked}>
        {(s) => (
          <More of={list(s.items)} size={50}>
            {(some) => (
              <Table role="table" aria-label={`Services of ${name}`} variant="compact">
                <Thead>
                  <Tr>
                    <Th>Service</Th>
                    <Th>Address</Th>
                    <Th>Cluster</Th>
                    <Th>Check</Th>
                    <Th>Written by</Th>
                    <Th>Differs</Th>
                  </Tr>
                </Thead>
                <Tbody>
                  {some.map((e) => (
                    <Tr key={`${e.node} ${e.id}`}>
                      <Td dataLabel="Service" className="break">
                        {e.service}
                        <div className="hint break">{list(e.tags).join(', ')}</div>
                      </Td>
                      <Td dataLabel="Address" className="break">
                        {e.address}:{e.port}
                      </Td>
                      <Td dataLabel="Cluster">
                        {e.cluster ? <Link to={`/clusters/${e.cluster}`}>{e.cluster}</Link> : '–'}
                      </Td>
                      <Td dataLabel="Check">
                        {e.drift === 'missing' ? (
                          '–'
                        ) : (
                          <Status of={e.passing ? 'ok' : 'failed'} word={e.passing ? 'passing' : 'failing'} />
                        )}
                        {!e.passing && <div className="hint break">{e.output}</div>}
                      </Td>
                      <Td dataLabel="Written by">{writers[e.writer]}</Td>
                      <Td dataLabel="Differs">{e.drift ? <Status of={e.drift} /> : '–'}</Td>
                    </Tr>
                  ))}
                </Tbody>
              </Table>
            )}
          </More>
        )}
      </Answer>
    </section>
  )
}

// Gaps are nodes without a route to services, and hosts without one to clusters. Without one there is nothing to see.
function Gaps({ name }: { name: string }) {
  const asked = api.useQuery(
    'get',
    '/consuls/{name}/gaps',
    { params: { path: { name } } },
    { refetchInterval: 4 * often, retry: false },
  )
  if (asked.data === undefined || list(asked.data.items).length === 0) return null // the services say why
  return (
    <section>
      <Content component="h3">Who cannot reach what</Content>
      <More of={list(asked.data.items)} size={50}>
        {(some) => (
          <Table role="table" aria-label={`Routes that are missing for ${name}`} variant="compact">
            <Thead>
              <Tr>
                <Th>Who</Th>
                <Th>Network</Th>
                <Th>Services</Th>
                <Th>Why</Th>
              </Tr>
            </Thead>
            <Tbody>
              {some.map((g) => (
                <Tr key={`${g.cluster} ${g.from ?? ''} ${g.network ?? ''} ${g.cidr}`}>
                  <Td dataLabel="Who">
                    {g.from === undefined ? (
                      <Link to={`/clusters/${g.cluster}`}>{g.cluster}</Link>
                    ) : (
                      `hosts on ${g.from}`
                    )}
                    <div className="hint break">{list(g.nodes).join(', ')}</div>
                  </Td>
                  <Td dataLabel="Network" className="break">
                    {g.network ?? '–'}
                    <div className="hint">{g.cidr}</div>
                  </Td>
                  <Td dataLabel="Services" className="break">
                    {list(g.services).join(', ')}
                    {g.from !== undefined && <div className="hint">of cluster {g.cluster}</div>}
                  </Td>
                  <Td dataLabel="Why" className="break">
                    {g.problem}
                    <div className="hint break">{g.hint}</div>
                  </Td>
                </Tr>
              ))}
            </Tbody>
          </Table>
        )}
      </More>
      {!!asked.data.more && <p className="hint">{asked.data.more} more are not shown.</p>}
    </section>
  )
}
