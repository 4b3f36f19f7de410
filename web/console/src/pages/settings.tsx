import {
  Button,
  Card,
  CardBody,
  CardTitle,
  ClipboardCopy,
  FormGroup,
  FormSelect,
  FormSelectOption,
  TextInput,
} from '@patternfly/react-core'
import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table'
import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { PasswordForm } from '../app/login'
import { useMe } from '../app/me'
import { setTheme, useTheme, type Theme } from '../app/theme'
import { Ask, AskButton } from '../ui/ask'
import { Answer, Facts, Nothing, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { Time } from '../ui/time'
import { Drafts } from './draftList'
import { Alert } from '../ui/alert'

// Settings are the user's own: who they are here, their password, sessions and tokens, and how the console looks.
export default function Settings() {
  const me = useMe()
  const theme = useTheme()
  const version = api.useQuery('get', '/version', {})
  const [changed, setChanged] = useState(false)
  return (
    <Page title="Settings">
      <div className="stack">
        <Card component="section">
          <CardTitle component="h2">You</CardTitle>
          <CardBody>
            <Facts
              of={[
                ['User', me.user],
                ['Role', me.role],
                [
                  'Grants',
                  list(me.grants)
                    .map((g) => `${g.role} ${g.cluster ? `on ${g.cluster}` : `in ${g.project}`}`)
                    .join(', '),
                ],
                [
                  'Director',
                  version.data && `${version.data.version}${version.data.commit ? ` (${version.data.commit})` : ''}`,
                ],
              ]}
            />
            <FormGroup label="Theme" fieldId="theme">
              <FormSelect id="theme" value={theme} onChange={(_, v) => setTheme(v as Theme)}>
                <FormSelectOption value="system" label="As the system" />
                <FormSelectOption value="light" label="Light" />
                <FormSelectOption value="dark" label="Dark" />
              </FormSelect>
            </FormGroup>
          </CardBody>
        </Card>
        <Card component="section">
          <CardTitle component="h2">Password</CardTitle>
          <CardBody className="stack">
            {changed && (
              <Alert
                isInline
                variant="success"
                title="The password is changed. All your other sessions have ended."
                role="status"
              />
            )}
            <PasswordForm onChanged={() => setChanged(true)} />
          </CardBody>
        </Card>
        <Sessions />
        <Tokens />
        <Drafts />
      </div>
    </Page>
  )
}

function Sessions() {
  const queries = useQueryClient()
  const asked = api.useQuery('get', '/sessions', {})
  const [failed, setFailed] = useState<unknown>()
  const end = (id: string) => {
    must(client.DELETE('/sessions/{id}', { params: { path: { id } } }))
      .then(() => queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/sessions' }))
      .catch(setFailed)
  }
  return (
    <Card component="section">
      <CardTitle component="h2">Sessions</CardTitle>
      <CardBody>
        {failed !== undefined && <ProblemAlert of={failed} />}
        <Answer of={asked}>
          {(s) => (
            <Table role="table" aria-label="Sessions" variant="compact">
              <Thead>
                <Tr>
                  <Th>Since</Th>
                  <Th>With</Th>
                  <Th>From</Th>
                  <Th>Last used</Th>
                  <Th>Ends</Th>
                  <Th screenReaderText="Actions" />
                </Tr>
              </Thead>
              <Tbody>
                {list(s.items).map((one) => (
                  <Tr key={one.id}>
                    <Td dataLabel="Since">
                      <Time at={one.created_at} />
                    </Td>
                    <Td dataLabel="With">
                      {one.kind === 'browser' ? 'a browser' : 'directorctl'}
                      {one.current && ', this one'}
                    </Td>
                    <Td dataLabel="From">{one.address ?? '–'}</Td>
                    <Td dataLabel="Last used">
                      <Time at={one.used_at} />
                    </Td>
                    <Td dataLabel="Ends">
                      <Time at={one.expires_at} />
                    </Td>
                    <Td>
                      {!one.current && (
                        <Button variant="secondary" size="sm" onClick={() => end(one.id)}>
                          End
                        </Button>
                      )}
                    </Td>
                  </Tr>
                ))}
              </Tbody>
            </Table>
          )}
        </Answer>
      </CardBody>
    </Card>
  )
}

type Scope = NonNullable<Schemas['NewToken']['scope']>

function Tokens() {
  const queries = useQueryClient()
  const asked = api.useQuery('get', '/tokens', {})
  const [made, setMade] = useState<Schemas['CreatedToken']>()
  const changed = () => queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/tokens' })
  return (
    <Card component="section">
      <CardTitle component="h2">API tokens</CardTitle>
      <CardBody className="stack">
        {made && (
          <Alert isInline variant="info" title={`The token ${made.record.name}. It is shown only here and now.`}>
            <ClipboardCopy isReadOnly isCode hoverTip="Copy" clickTip="Copied" textAriaLabel="Token">
              {made.token}
            </ClipboardCopy>
          </Alert>
        )}
        <Answer of={asked}>
          {(t) =>
            list(t.items).length === 0 ? (
              <Nothing title="You have no API token." />
            ) : (
              <Table role="table" aria-label="API tokens" variant="compact">
                <Thead>
                  <Tr>
                    <Th>Name</Th>
                    <Th>For</Th>
                    <Th>Last used</Th>
                    <Th>Ends</Th>
                    <Th screenReaderText="Actions" />
                  </Tr>
                </Thead>
                <Tbody>
                  {list(t.items).map((one) => (
                    <Tr key={one.id}>
                      <Td dataLabel="Name" className="break">
                        {one.name}
                      </Td>
                      <Td dataLabel="For">{one.scope}</Td>
                      <Td dataLabel="Last used">
                        <Time at={one.used_at} />
                      </Td>
                      <Td dataLabel="Ends">
                        <Time at={one.expires_at} />
                      </Td>
                      <Td>
                        <AskButton
                          variant="secondary"
                          size="sm"
                          ask={(close) => (
                            <Ask
                              title={`Revoke ${one.name}?`}
                              verb="Revoke"
                              danger
                              close={close}
                              act={async () => {
                                await must(client.DELETE('/tokens/{id}', { params: { path: { id: one.id } } }))
                                void changed()
                              }}
                            >
                              What uses it is refused from now on.
                            </Ask>
                          )}
                        >
                          Revoke
                        </AskButton>
                      </Td>
                    </Tr>
                  ))}
                </Tbody>
              </Table>
            )
          }
        </Answer>
        <NewToken
          done={(t) => {
            setMade(t)
            void changed()
          }}
        />
      </CardBody>
    </Card>
  )
}

function NewToken({ done }: { done: (t: Schemas['CreatedToken']) => void }) {
  const [name, setName] = useState('')
  const [days, setDays] = useState('90')
  const [scope, setScope] = useState<Scope>('read')
  const [password, setPassword] = useState('')
  return (
    <AskButton
      variant="secondary"
      ask={(close) => (
        <Ask
          title="New API token"
          verb="Create"
          ready={name !== '' && Number(days) > 0}
          close={close}
          act={async () => {
            done(
              await must(
                client.POST('/tokens', { body: { name, scope, days: Number(days), password: password || undefined } }),
              ),
            )
            setPassword('')
          }}
        >
          <FormGroup label="Name" fieldId="token-name" isRequired>
            <TextInput
              id="token-name"
              isRequired
              placeholder="such as backup-script"
              value={name}
              autoComplete="off"
              onChange={(_, v) => setName(v)}
            />
          </FormGroup>
          <FormGroup label="It may" fieldId="token-scope">
            <FormSelect id="token-scope" value={scope} onChange={(_, v) => setScope(v as Scope)}>
              <FormSelectOption value="read" label="read" />
              <FormSelectOption value="phases" label="ask for phases" />
              <FormSelectOption value="all" label="do all that you may" />
            </FormSelect>
          </FormGroup>
          <FormGroup label="Days that it is good" fieldId="token-days">
            <TextInput id="token-days" inputMode="numeric" value={days} onChange={(_, v) => setDays(v)} />
          </FormGroup>
          <FormGroup label="Your password" fieldId="token-password">
            <TextInput
              id="token-password"
              type="password"
              autoComplete="current-password"
              value={password}
              onChange={(_, v) => setPassword(v)}
            />
          </FormGroup>
        </Ask>
      )}
    >
      New token
    </AskButton>
  )
}
