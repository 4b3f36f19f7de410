import { Button, Card, CardBody, CardTitle } from '@patternfly/react-core'
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table'
import { useState } from 'react'
import { Link, useParams } from 'react-router'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { edits, useMe } from '../app/me'
import { LinkButton } from '../ui/linkButton'
import { More } from '../ui/more'
import { Answer, Nothing, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { size } from '../ui/size'
import { Status } from '../ui/status'
import { Credentials } from './credentials'
import { Described } from './described'
import { FindingFix } from './findingFix'
import { Fits } from './fits'
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
        {tab === 'releases' && <Described kind="Release" />}
        {tab === 'audit' && <Ledger />}
        {tab === 'disks' && <Disks />}
        {tab === 'credentials' && <Credentials />}
      </div>
    </Page>
  )
}

function Capacity() {
  const asked = api.useQuery('get', '/capacity', {})
  return (
    <Answer of={asked}>
      {(c) =>
        list(c.items).length === 0 ? (
          <Nothing title="There is no provider yet.">
            <Link to="/apply?template=Provider">Tell the director about a hypervisor</Link>
          </Nothing>
        ) : (
          list(c.items).map((one) => <ProviderCard key={one.provider} of={one} />)
        )
      }
    </Answer>
  )
}

function ProviderCard({ of }: { of: Schemas['Capacity'] }) {
  return (
    <Card component="section">
      <CardTitle component="h2">
        <Link to={`/documents/Provider/${of.provider}`}>{of.provider}</Link>
      </CardTitle>
      <CardBody className="stack">
        {of.unseen && (
          <Alert isInline variant="warning" title={of.unseen}>
            {of.hint}
          </Alert>
        )}
        <ProviderTest name={of.provider} />
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
      </CardBody>
    </Card>
  )
}

function ProviderTest({ name }: { name: string }) {
  const [busy, setBusy] = useState(false)
  const [result, setResult] = useState<Schemas['ProviderTest']>()
  const [failed, setFailed] = useState<unknown>()
  const test = async () => {
    setBusy(true)
    setFailed(undefined)
    try {
      setResult(await must(client.POST('/providers/{name}/test', { params: { path: { name } } })))
    } catch (err) {
      setFailed(err)
    } finally {
      setBusy(false)
    }
  }
  return (
    <div className="stack">
      <Button
        variant="secondary"
        isLoading={busy}
        isDisabled={busy}
        onClick={() => void test()}
        aria-label={`Test ${name}`}
      >
        Test
      </Button>
      {failed !== undefined && <ProblemAlert of={failed} />}
      {result && (
        <Alert
          isInline
          variant={result.ok ? 'success' : 'danger'}
          title={result.ok ? 'Everything was found.' : 'Something is wrong.'}
          role="status"
        >
          <ul>
            {list(result.probes).map((p, i) => (
              <li key={i}>
                <Status of={p.ok ? 'ok' : 'failed'} /> {p.host && `${p.host}: `}
                {p.what}
                {p.found && `: ${p.found}`}
                {p.problem && `: ${p.problem}`}
                {p.hint && <div className="hint">{p.hint}</div>}
              </li>
            ))}
          </ul>
        </Alert>
      )}
    </div>
  )
}

function Images() {
  const me = useMe()
  const asked = api.useQuery('get', '/images', {})
  return (
    <>
      {edits(me) && <LinkButton to="/images/import">Import an image</LinkButton>}
      <Answer of={asked}>
        {(i) =>
          list(i.items).length === 0 ? (
            <Nothing title="There is no image yet." />
          ) : (
            <Table role="table" aria-label="Images" variant="compact">
              <Thead>
                <Tr>
                  <Th>Image</Th>
                  <Th>Kubernetes</Th>
                  <Th>Clusters</Th>
                  <Th>Providers</Th>
                  <Th>Signed by</Th>
                  <Th>SHA-256</Th>
                </Tr>
              </Thead>
              <Tbody>
                {list(i.items).map((one) => (
                  <Tr key={`${one.name ?? ''} ${one.sha256}`}>
                    <Td dataLabel="Image">
                      {one.name ? <Link to={`/documents/Image/${one.name}`}>{one.name}</Link> : 'no document names it'}
                      {one.refused && <div className="hint">{one.refused}</div>}
                    </Td>
                    <Td dataLabel="Kubernetes">{one.kubernetes}</Td>
                    <Td dataLabel="Clusters">{list(one.clusters).length}</Td>
                    <Td dataLabel="Providers">{list(one.providers).join(', ') || '–'}</Td>
                    <Td dataLabel="Signed by">{one.signed_by ?? '–'}</Td>
                    <Td dataLabel="SHA-256" className="mono">
                      {one.sha256.slice(0, 16)}
                    </Td>
                  </Tr>
                ))}
              </Tbody>
            </Table>
          )
        }
      </Answer>
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
