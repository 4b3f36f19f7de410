import { Card, CardBody, CardTitle, Content, FormGroup, TextArea } from '@patternfly/react-core'
import { ActionsColumn, Table, Tbody, Thead } from '@patternfly/react-table'
import { useQueryClient } from '@tanstack/react-query'
import { useState, type ReactNode } from 'react'
import { Link } from 'react-router'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { useMe } from '../app/me'
import { Alert } from '../ui/alert'
import { Ask } from '../ui/ask'
import { Td, Th, Tr } from '../ui/cells'
import { atOnce, Command, quoted } from '../ui/command'
import { ProblemAlert } from '../ui/problem'
import { save } from '../ui/save'
import { Status } from '../ui/status'
import { Time } from '../ui/time'

type Authority = Schemas['Authority']
type Test = Schemas['ProviderTest']

// Authorities are those that issue the authorities of clusters. Nothing is shown where there are none.
export function Authorities() {
  const me = useMe()
  const queries = useQueryClient()
  const [asks, setAsks] = useState<ReactNode>()
  const [result, setResult] = useState<Test>()
  const [failed, setFailed] = useState<unknown>()
  const asked = api.useQuery('get', '/certificate-authorities', {}, { enabled: me.scope === 'all' })
  if (me.scope !== 'all') return null
  if (asked.error) return <ProblemAlert of={asked.error} retry={() => void asked.refetch()} />
  const items = list(asked.data?.items)
  if (items.length === 0) return null
  const close = () => setAsks(undefined)
  const changed = () =>
    void queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/certificate-authorities' })
  const actions = (a: Authority) => [
    { title: 'Test', onClick: () => setAsks(<TestDialog name={a.name} close={close} done={setResult} />) },
    ...(a.type === 'csr'
      ? [
          atOnce('Get the request', `directorctl ca csr ${quoted(a.name)}`, () => {
            void request(a.name).then(changed, setFailed)
          }),
          {
            title: 'Import the certificate',
            onClick: () => setAsks(<ImportDialog name={a.name} close={close} changed={changed} />),
          },
        ]
      : []),
  ]
  return (
    <Card component="section">
      <CardTitle component="h2">Who issues the authorities of clusters</CardTitle>
      <CardBody className="stack">
        <Table role="table" aria-label="Certificate authorities" variant="compact">
          <Thead>
            <Tr>
              <Th>Name</Th>
              <Th>Type</Th>
              <Th>Certificate</Th>
              <Th>Ends</Th>
              {me.role === 'admin' && <Th screenReaderText="Actions" />}
            </Tr>
          </Thead>
          <Tbody>
            {items.map((a) => (
              <Tr key={a.name}>
                <Td dataLabel="Name" className="break">
                  <Link to={`/documents/CertificateAuthority/${a.name}`}>{a.name}</Link>
                </Td>
                <Td dataLabel="Type">{a.type}</Td>
                <Td dataLabel="Certificate" className="break">
                  {a.subject ?? '–'}
                  {a.waiting && <div className="hint">A request waits for its certificate.</div>}
                  {a.problem && (
                    <div className="hint break">
                      {a.problem} {a.hint}
                    </div>
                  )}
                </Td>
                <Td dataLabel="Ends">{a.ends ? <Time at={a.ends} /> : '–'}</Td>
                {me.role === 'admin' && (
                  <Td isActionCell>
                    <ActionsColumn
                      aria-label={`Actions on ${a.name}`}
                      popperProps={{ position: 'right' }}
                      items={actions(a)}
                    />
                  </Td>
                )}
              </Tr>
            ))}
          </Tbody>
        </Table>
        {failed !== undefined && <ProblemAlert of={failed} />}
        {result && <TestResult of={result} />}
        {asks}
      </CardBody>
    </Card>
  )
}

async function request(name: string) {
  const made = await must(
    client.POST('/certificate-authorities/{name}/request', { params: { path: { name } }, body: {} }),
  )
  save(`${name}.csr`, made.request, 'application/pkcs10')
}

interface DialogProps {
  name: string
  close: () => void
}

function TestDialog({ name, close, done }: DialogProps & { done: (t: Test) => void }) {
  return (
    <Ask
      title={`Test ${name}?`}
      verb="Test"
      close={close}
      act={async () =>
        done(await must(client.POST('/certificate-authorities/{name}/test', { params: { path: { name } } })))
      }
    >
      <Content component="p">
        An authority is signed on trial, and its key is forgotten. A server of step-ca issues one certificate.
      </Content>
      <Command>{`directorctl ca test ${quoted(name)}`}</Command>
    </Ask>
  )
}

function TestResult({ of }: { of: Test }) {
  return (
    <Alert
      isInline
      variant={of.ok ? 'success' : 'danger'}
      title={of.ok ? 'It can issue authorities for clusters.' : 'Something is wrong.'}
      role="status"
    >
      <ul>
        {list(of.probes).map((p, i) => (
          <li key={i}>
            <Status of={p.ok ? 'ok' : 'failed'} /> {p.what}
            {p.found && `: ${p.found}`}
            {p.problem && `: ${p.problem}`}
            {p.hint && <div className="hint">{p.hint}</div>}
          </li>
        ))}
      </ul>
    </Alert>
  )
}

function ImportDialog({ name, close, changed }: DialogProps & { changed: () => void }) {
  const [certificate, setCertificate] = useState('')
  return (
    <Ask
      title={`Import the certificate of ${name}`}
      verb="Import"
      ready={certificate.trim() !== ''}
      close={close}
      act={async () => {
        await must(
          client.POST('/certificate-authorities/{name}/certificate', {
            params: { path: { name } },
            body: { certificate },
          }),
        )
        changed()
      }}
    >
      <FormGroup label="Certificate in PEM form; those that signed it may follow" fieldId="authority-certificate">
        <TextArea
          id="authority-certificate"
          value={certificate}
          rows={12}
          resizeOrientation="vertical"
          onChange={(_, v) => setCertificate(v)}
        />
      </FormGroup>
      <Command>{`directorctl ca import ${quoted(name)} certificate.pem`}</Command>
    </Ask>
  )
}
