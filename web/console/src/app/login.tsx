import {
  ActionGroup,
  Button,
  Divider,
  Form,
  FormGroup,
  HelperText,
  HelperTextItem,
  LoginPage,
  TextInput,
} from '@patternfly/react-core'
import { useState, type FormEvent } from 'react'
import { useLocation } from 'react-router'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { problemOf } from '../api/problem'
import { useAct } from '../ui/act'
import { ProblemAlert } from '../ui/problem'
import { Alert } from '../ui/alert'

interface LoginProps {
  onLogin: (me: Schemas['Me']) => void
  as?: string // who was logged in before
}

// LoginForm logs in with a password, or at one of the identity providers.
export function LoginForm({ onLogin, as }: LoginProps) {
  const [user, setUser] = useState(as ?? '')
  const [password, setPassword] = useState('')
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState<unknown>()
  const { pathname, search } = useLocation()
  const providers = api.useQuery('get', '/session/providers', {}, { retry: false })
  const submit = async (e: FormEvent) => {
    e.preventDefault()
    setBusy(true)
    setFailed(undefined)
    try {
      onLogin(await must(client.POST('/session', { body: { user, password } })))
    } catch (err) {
      setFailed(err)
      setPassword('')
    } finally {
      setBusy(false)
    }
  }
  return (
    <>
      <Form onSubmit={(e) => void submit(e)}>
        {failed !== undefined && <ProblemAlert of={failed} />}
        <FormGroup label="User" fieldId="login-user" isRequired>
          <TextInput
            id="login-user"
            name="username"
            autoComplete="username"
            isRequired
            autoFocus={user === ''}
            value={user}
            onChange={(_, v) => setUser(v)}
          />
        </FormGroup>
        <FormGroup label="Password" fieldId="login-password" isRequired>
          <TextInput
            id="login-password"
            name="password"
            type="password"
            autoComplete="current-password"
            isRequired
            autoFocus={user !== ''}
            value={password}
            onChange={(_, v) => setPassword(v)}
          />
        </FormGroup>
        <ActionGroup>
          <Button type="submit" isBlock isLoading={busy} isDisabled={busy || user === '' || password === ''}>
            Log in
          </Button>
        </ActionGroup>
      </Form>
      {list(providers.data?.items).length > 0 && (
        <>
          <Divider className="or" />
          {list(providers.data?.items).map((p) => (
            <Button
              key={p.name}
              component="a"
              variant="secondary"
              isBlock
              href={`${p.url}?next=${encodeURIComponent(pathname + search)}`}
            >
              Log in with {p.title}
            </Button>
          ))}
        </>
      )}
    </>
  )
}

const slogan = 'Kubernetes clusters on the hypervisors that you own.'

export function LoginScreen(props: LoginProps) {
  return (
    <LoginPage className="login" textContent={slogan} loginTitle="Director" loginSubtitle="Log in to your account">
      <h1 className="pf-v6-screen-reader">Director</h1>
      <LoginForm {...props} />
    </LoginPage>
  )
}

// PasswordForm changes the own password.
export function PasswordForm({ onChanged, verb = 'Change the password' }: { onChanged: () => void; verb?: string }) {
  const [current, setCurrent] = useState('')
  const [wanted, setWanted] = useState('')
  const [again, setAgain] = useState('')
  const { busy, failed, act } = useAct()
  const differ = again !== '' && wanted !== again
  const submit = (e: FormEvent) => {
    e.preventDefault()
    return act(async () => {
      await must(client.POST('/password', { body: { current, new: wanted } }))
      setCurrent('')
      setWanted('')
      setAgain('')
      onChanged()
    })
  }
  const field = (id: string, label: string, value: string, set: (v: string) => void, complete: string) => (
    <FormGroup label={label} fieldId={id} isRequired>
      <TextInput
        id={id}
        type="password"
        autoComplete={complete}
        isRequired
        value={value}
        onChange={(_, v) => set(v)}
        validated={id === 'password-again' && differ ? 'error' : 'default'}
      />
      {id === 'password-again' && differ && (
        <HelperText>
          <HelperTextItem variant="error">The two are not the same.</HelperTextItem>
        </HelperText>
      )}
    </FormGroup>
  )
  return (
    <Form onSubmit={(e) => void submit(e)}>
      {failed !== undefined && <ProblemAlert of={failed} />}
      {field('password-current', 'Current password', current, setCurrent, 'current-password')}
      {field('password-new', 'New password', wanted, setWanted, 'new-password')}
      {field('password-again', 'New password again', again, setAgain, 'new-password')}
      <ActionGroup>
        <Button type="submit" isLoading={busy} isDisabled={busy || current === '' || wanted === '' || wanted !== again}>
          {verb}
        </Button>
      </ActionGroup>
    </Form>
  )
}

// MustChange asks for a password of the user's own before anything else.
export function MustChange({ user, onChanged }: { user: string; onChanged: () => void }) {
  return (
    <LoginPage
      className="login"
      textContent={slogan}
      loginTitle="Choose a password"
      loginSubtitle={`The password of ${user} is good for one log-in.`}
    >
      <h1 className="pf-v6-screen-reader">Director</h1>
      <PasswordForm onChanged={onChanged} verb="Go on" />
    </LoginPage>
  )
}

export function Unreachable({ of, retry }: { of: unknown; retry: () => void }) {
  const p = problemOf(of)
  return (
    <LoginPage className="login" textContent={slogan} loginTitle="Director">
      <h1 className="pf-v6-screen-reader">Director</h1>
      <Alert isInline variant="danger" title={p.detail}>
        {p.hint}
      </Alert>
      <Button className="after" onClick={retry}>
        Try again
      </Button>
    </LoginPage>
  )
}
