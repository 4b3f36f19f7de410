import {
  Card,
  CardBody,
  CardTitle,
  Content,
  FormGroup,
  FormSelect,
  FormSelectOption,
  TextInput,
} from '@patternfly/react-core'
import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { PasswordForm } from '../app/login'
import { useMe } from '../app/me'
import { setTheme, useTheme, type Theme } from '../app/theme'
import { Ask, AskButton } from '../ui/ask'
import { Command } from '../ui/command'
import { Answer, Facts, Nothing, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { MadeToken, noWish, SessionTable, tokenCommand, TokenFields, TokenTable, wished, wishReady } from './access'
import { DirectorCard } from './directorCard'
import { Drafts } from './draftList'
import { Alert } from '../ui/alert'

// Settings are the user's own: who they are here, their password, sessions and tokens, and how the console looks.
export default function Settings() {
  const me = useMe()
  const theme = useTheme()
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
            <Command>directorctl password</Command>
          </CardBody>
        </Card>
        <DirectorCard />
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
      <CardBody className="stack">
        {failed !== undefined && <ProblemAlert of={failed} />}
        <Answer of={asked}>{(s) => <SessionTable of={list(s.items)} label="Sessions" end={end} />}</Answer>
        <Command>directorctl users end-session ID</Command>
      </CardBody>
    </Card>
  )
}

function Tokens() {
  const queries = useQueryClient()
  const asked = api.useQuery('get', '/tokens', {})
  const [made, setMade] = useState<Schemas['CreatedToken']>()
  const changed = () => queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/tokens' })
  return (
    <Card component="section">
      <CardTitle component="h2">API tokens</CardTitle>
      <CardBody className="stack">
        {made && <MadeToken of={made} />}
        <Answer of={asked}>
          {(t) =>
            list(t.items).length === 0 ? (
              <Nothing title="You have no API token." />
            ) : (
              <TokenTable
                of={list(t.items)}
                label="API tokens"
                action={(one) => (
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
                        <Content component="p">What uses it is refused from now on.</Content>
                        <Command>{`directorctl users revoke-token ${one.id}`}</Command>
                      </Ask>
                    )}
                  >
                    Revoke
                  </AskButton>
                )}
              />
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
  const [wish, setWish] = useState(noWish)
  const [password, setPassword] = useState('')
  return (
    <AskButton
      variant="secondary"
      ask={(close) => (
        <Ask
          title="New API token"
          verb="Create"
          ready={wishReady(wish)}
          close={close}
          act={async () => {
            done(await must(client.POST('/tokens', { body: { ...wished(wish), password: password || undefined } })))
            setPassword('')
          }}
        >
          <TokenFields id="token" of={wish} set={setWish} example="backup-script" all="do all that you may" />
          <FormGroup label="Your password" fieldId="token-password">
            <TextInput
              id="token-password"
              type="password"
              autoComplete="current-password"
              value={password}
              onChange={(_, v) => setPassword(v)}
            />
          </FormGroup>
          <Command>{tokenCommand(wish)}</Command>
        </Ask>
      )}
    >
      New token
    </AskButton>
  )
}
