import { Button, Card, CardBody, CardTitle } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { useState } from 'react'
import { Link, useParams } from 'react-router'
import { api, client, json, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { useMe } from '../app/me'
import { Td, Th, Tr } from '../ui/cells'
import { Command, quoted } from '../ui/command'
import { More } from '../ui/more'
import { Answer, Nothing, Page } from '../ui/page'
import { size } from '../ui/size'
import { Credentials } from './credentials'
import { DeleteDisk } from './deleteDisk'
import { Described } from './described'
import { FindingFix } from './findingFix'
import { Fits } from './fits'
import { Images } from './images'
import { Probes } from './probes'
import { Releases } from './releases'
import { PageTabs } from '../ui/tabs'
import { Time } from '../ui/time'
import { Alert } from '../ui/alert'

const tabs = [
  ['capacity', 'Capacity'],
  ['fits', 'What would fit'],
  ['networks', 'Networks'],
  ['images', 'Images'],
  ['releases', 'Releases'],
  ['audit', 'Ledger'],
  ['disks', 'Kept disks'],
  ['credentials', 'Credentials'],
] as const

export default function Infrastructure() {
  const { tab = 'capacity' } = useParams()
  return (
    <Page title="Infrastructure">
      <PageTabs label="Parts of the infrastructure" base="/infrastructure" at={tab} of={tabs} />
      <div className="after stack">
        {tab === 'capacity' && <Capacity />}
        {tab === 'fits' && <Fits />}
        {tab === 'networks' && <Described kind="Network" />}
        {tab === 'images' && <Images />}
        {tab === 'releases' && <Releases />}
        {tab === 'audit' && <Ledger />}
        {tab === 'disks' && <Disks />}
        {tab === 'credentials' && <Credentials />}
      </div>
    </Page>
  )
}

function Capacity() {
  const asked = api.useQuery('get', '/documents/{kind}', {
    params: { path: { kind: 'Provider' }, query: { limit: 200, fields: ['name'] } },
  })
  return (
    <Answer of={asked}>
      {(answer) => {
        const providers = list(json(answer).items)
        return providers.length === 0 ? (
          <Nothing title="There is no provider yet.">
            <Link to="/apply?template=Provider">Tell the director about a hypervisor</Link>
          </Nothing>
        ) : (
          providers.map((p) => <ProviderCard key={p.name} name={p.name} />)
        )
      }}
    </Answer>
  )
}

// ProviderCard asks for its provider alone: one that hangs hides no other.
function ProviderCard({ name }: { name: string }) {
  const asked = api.useQuery('get', '/capacity', { params: { query: { provider: [name] } } })
  return (
    <Card component="section">
      <CardTitle component="h2">
        <Link to={`/documents/Provider/${name}`}>{name}</Link>
      </CardTitle>
      <CardBody className="stack">
        <Probes
          kind="Provider"
          name={name}
          ask={() => must(client.POST('/providers/{name}/test', { params: { path: { name } } }))}
        />
        <Command>{`directorctl provider test ${quoted(name)}`}</Command>
        <Answer of={asked}>{(c) => list(c.items).map((one) => <Hosts key={one.provider} of={one} />)}</Answer>
      </CardBody>
    </Card>
  )
}

function Hosts({ of }: { of: Schemas['Capacity'] }) {
  return (
    <>
      {of.unseen && (
        <Alert isInline variant="warning" title={of.unseen}>
          {of.hint}
        </Alert>
      )}
      {list(of.hosts).length > 0 && (
        <More of={list(of.hosts)} size={50}>
          {(hosts) => (
            <Table role="table" aria-label={`Hosts of ${of.provider}`} variant="compact">
              <Thead>
                <Tr>
                  <Th>Host</Th>
                  <Th>CPUs promised</Th>
                  <Th>Memory left</Th>
                  <Th>Disk left</Th>
                </Tr>
              </Thead>
              <Tbody>
                {hosts.map((h) => (
                  <Tr key={h.host}>
                    <Td dataLabel="Host">{h.host}</Td>
                    <Td dataLabel="CPUs promised">
                      {h.cpus_promised} of {h.cpus}
                    </Td>
                    <Td dataLabel="Memory left">
                      {size(h.memory_left_bytes)} of {size(h.memory_bytes)}
                    </Td>
                    <Td dataLabel="Disk left">
                      {size(h.disk_left_bytes)} of {size(h.disk_bytes)}
                    </Td>
                  </Tr>
                ))}
              </Tbody>
            </Table>
          )}
        </More>
      )}
    </>
  )
}

// Ledger compares what the director knows with what hypervisors show. It asks all of them, so only when it is wanted.
function Ledger() {
  const me = useMe()
  const mayAct = me.scope === 'all' && me.role === 'admin'
  const [wanted, setWanted] = useState(false)
  const asked = api.useQuery('get', '/vms/audit', {}, { enabled: wanted, staleTime: 0, refetchInterval: false })
  if (!wanted) {
    return (
      <Nothing title="Compare the ledger of VMs with the hypervisors">
        <Button onClick={() => setWanted(true)}>Compare</Button>
      </Nothing>
    )
  }
  return (
    <Answer of={asked}>
      {(a) => (
        <>
          {list(a.providers)
            .filter((p) => p.unseen)
            .map((p) => (
              <Alert key={p.name} isInline variant="warning" title={`${p.name}: ${p.unseen}`}>
                {p.hint}
              </Alert>
            ))}
          {list(a.findings).length === 0 ? (
            <Nothing title="Everything is as the ledger says." />
          ) : (
            <More of={list(a.findings)} size={100}>
              {(some) => (
                <Table role="table" aria-label="Findings" variant="compact">
                  <Thead>
                    <Tr>
                      <Th>What</Th>
                      <Th>Kind</Th>
                      <Th>Provider</Th>
                      <Th>Cluster</Th>
                      <Th>What to do</Th>
                    </Tr>
                  </Thead>
                  <Tbody>
                    {some.map((f, i) => (
                      <Tr key={i}>
                        <Td dataLabel="What" className="break">
                          <strong>{f.name}</strong>: {f.problem}
                        </Td>
                        <Td dataLabel="Kind">{f.kind}</Td>
                        <Td dataLabel="Provider">{f.provider}</Td>
                        <Td dataLabel="Cluster">
                          {f.cluster ? <Link to={`/clusters/${f.cluster}`}>{f.cluster}</Link> : '–'}
                        </Td>
                        <Td dataLabel="What to do">
                          <FindingFix of={f} mayAct={mayAct} />
                        </Td>
                      </Tr>
                    ))}
                  </Tbody>
                </Table>
              )}
            </More>
          )}
        </>
      )}
    </Answer>
  )
}

function Disks() {
  const me = useMe()
  const mayAct = me.scope === 'all' && me.role === 'admin'
  const asked = api.useQuery('get', '/disks', {})
  return (
    <Answer of={asked}>
      {(d) =>
        list(d.items).length === 0 ? (
          <Nothing title="No disk has outlived its VM." />
        ) : (
          <More of={list(d.items)} size={100}>
            {(some) => (
              <Table role="table" aria-label="Disks" variant="compact">
                <Thead>
                  <Tr>
                    <Th>Disk</Th>
                    <Th>Provider</Th>
                    <Th>Cluster</Th>
                    <Th>State</Th>
                    <Th>Size</Th>
                    <Th>Kept</Th>
                    {mayAct && <Th screenReaderText="Actions" />}
                  </Tr>
                </Thead>
                <Tbody>
                  {some.map((one) => (
                    <Tr key={`${one.provider} ${one.id}`}>
                      <Td dataLabel="Disk" className="break">
                        {one.name}
                      </Td>
                      <Td dataLabel="Provider">{one.provider}</Td>
                      <Td dataLabel="Cluster">{one.cluster ?? '–'}</Td>
                      <Td dataLabel="State">{one.state}</Td>
                      <Td dataLabel="Size">{one.size_bytes ? size(one.size_bytes) : '–'}</Td>
                      <Td dataLabel="Kept">
                        <Time at={one.kept_at} />
                      </Td>
                      {mayAct && (
                        <Td>
                          <DeleteDisk of={one} />
                        </Td>
                      )}
                    </Tr>
                  ))}
                </Tbody>
              </Table>
            )}
          </More>
        )
      }
    </Answer>
  )
}
