import { ActionGroup, Button, Content, Form, FormGroup, TextInput } from '@patternfly/react-core'
import { useState, type FormEvent } from 'react'
import { useSearchParams } from 'react-router'
import { api, client, type Schemas } from '../api/client'
import { must } from '../api/must'
import { useMe } from '../app/me'
import { useAct } from '../ui/act'
import { Alert } from '../ui/alert'
import { Answer, Facts, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { Time } from '../ui/time'

// Approve lets a program in: directorctl has opened this page, or a person types the code that it shows elsewhere.
export default function Approve() {
  const [params] = useSearchParams()
  const id = params.get('request')
  return <Page title="Let directorctl in">{id ? <Opened id={id} /> : <Typed />}</Page>
}

function Opened({ id }: { id: string }) {
  const asked = api.useQuery(
    'get',
    '/logins/{id}',
    { params: { path: { id } } },
    { retry: false, refetchInterval: false, refetchOnWindowFocus: false, staleTime: Infinity },
  )
  return <Answer of={asked}>{(a) => <Question of={a} />}</Answer>
}

// Typed never has the code from the address: a link that somebody sends must not be enough.
function Typed() {
  const [code, setCode] = useState('')
  const { busy, failed, act } = useAct()
  const [found, setFound] = useState<Schemas['Asking']>()
  const find = (e: FormEvent) => {
    e.preventDefault()
    return act(async () => {
      setFound(await must(client.POST('/logins/find', { body: { code } })))
    })
  }
  if (found) return <Question of={found} />
  return (
    <Form onSubmit={(e) => void find(e)} isWidthLimited>
      {failed !== undefined && <ProblemAlert of={failed} />}
      <Content component="p">Type the code that directorctl shows. Type none that somebody has sent you.</Content>
      <FormGroup label="Code" fieldId="user-code" isRequired>
        <TextInput
          id="user-code"
          autoComplete="off"
          spellCheck={false}
          isRequired
          maxLength={16}
          value={code}
          onChange={(_, v) => setCode(v)}
        />
      </FormGroup>
      <ActionGroup>
        <Button type="submit" isLoading={busy} isDisabled={busy || code.trim().length < 8}>
          Continue
        </Button>
      </ActionGroup>
    </Form>
  )
}

function Question({ of }: { of: Schemas['Asking'] }) {
  const me = useMe()
  const { busy, failed, act } = useAct()
  const [done, setDone] = useState('')
  const answer = (allow: boolean) =>
    act(async () => {
      const to = { params: { path: { id: of.id } } }
      const a = await must(allow ? client.POST('/logins/{id}/allow', to) : client.POST('/logins/{id}/refuse', to))
      setDone(allow ? 'directorctl is let in. You can close this page.' : 'directorctl is refused.')
      if (a.continue) location.assign(a.continue)
    })
  if (done) return <Alert isInline variant="success" title={done} role="status" />
  return (
    <div className="stack">
      {failed !== undefined && <ProblemAlert of={failed} />}
      <Content component="p">
        Let directorctl on host {of.host || 'unknown'} in as {me.user}? It can do all that you can do. Its session is
        listed in your settings, where you can end it.
      </Content>
      <Facts
        of={[
          ['Host, as it says', of.host || 'unknown'],
          ['Asks from', of.address],
          ['Until', <Time key="until" at={of.expires_at} />],
        ]}
      />
      <ActionGroup>
        <Button isLoading={busy} isDisabled={busy} onClick={() => void answer(true)}>
          Let it in
        </Button>{' '}
        <Button variant="secondary" isDisabled={busy} onClick={() => void answer(false)}>
          Refuse
        </Button>
      </ActionGroup>
    </div>
  )
}
