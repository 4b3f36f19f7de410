// What other users get in with: sessions of people, and API tokens, also those of programs.
import { Button, Content, Form, Modal, ModalBody, ModalHeader } from '@patternfly/react-core'
import { useQueryClient } from '@tanstack/react-query'
import { useId, useState, type FormEvent, type ReactNode } from 'react'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { useAct } from '../ui/act'
import { Command, quoted } from '../ui/command'
import { Answer, Nothing } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { MadeToken, noWish, SessionTable, tokenCommand, TokenFields, TokenTable, wished, wishReady } from './access'

function Dialog({ title, close, children }: { title: string; close: () => void; children: ReactNode }) {
  const id = useId()
  return (
    <Modal isOpen variant="large" onClose={close} aria-labelledby={id}>
      <ModalHeader title={title} labelId={id} />
      <ModalBody tabIndex={0}>
        <div className="stack">{children}</div>
      </ModalBody>
    </Modal>
  )
}

// UserSessions are the sessions of a user, each of which can be ended.
export function UserSessions({ user, close }: { user: string; close: () => void }) {
  const [failed, setFailed] = useState<unknown>()
  const asked = api.useQuery('get', '/users/{name}/sessions', { params: { path: { name: user } } })
  const end = (id: string) => {
    setFailed(undefined)
    must(client.DELETE('/users/{name}/sessions/{id}', { params: { path: { name: user, id } } }))
      .then(() => asked.refetch())
      .catch(setFailed)
  }
  return (
    <Dialog title={`Sessions of ${user}`} close={close}>
      {failed !== undefined && <ProblemAlert of={failed} />}
      <Answer of={asked}>
        {(s) =>
          list(s.items).length === 0 ? (
            <Nothing title={`${user} has no session.`} />
          ) : (
            <SessionTable of={list(s.items)} label={`Sessions of ${user}`} end={end} />
          )
        }
      </Answer>
      <Command>{`directorctl users end-session ID --user ${quoted(user)}`}</Command>
    </Dialog>
  )
}

// UserTokens are the API tokens of a user. Those of a program are made here; people make their own.
export function UserTokens({ user, service, close }: { user: string; service: boolean; close: () => void }) {
  const queries = useQueryClient()
  const [failed, setFailed] = useState<unknown>()
  const [made, setMade] = useState<Schemas['CreatedToken']>()
  const asked = api.useQuery('get', '/users/{name}/tokens', { params: { path: { name: user } } })
  const changed = () => queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/users/{name}/tokens' })
  const revoke = (id: string) => {
    setFailed(undefined)
    must(client.DELETE('/users/{name}/tokens/{id}', { params: { path: { name: user, id } } }))
      .then(changed)
      .catch(setFailed)
  }
  return (
    <Dialog title={`API tokens of ${user}`} close={close}>
      {made && <MadeToken of={made} />}
      {failed !== undefined && <ProblemAlert of={failed} />}
      <Answer of={asked}>
        {(t) =>
          list(t.items).length === 0 ? (
            <Nothing title={`${user} has no API token.`} />
          ) : (
            <TokenTable
              of={list(t.items)}
              label={`API tokens of ${user}`}
              action={(one) => (
                <Button
                  variant="secondary"
                  size="sm"
                  isDanger
                  aria-label={`Revoke ${one.name}`}
                  onClick={() => revoke(one.id)}
                >
                  Revoke
                </Button>
              )}
            />
          )
        }
      </Answer>
      <Command>{`directorctl users revoke-token ID --user ${quoted(user)}`}</Command>
      {service ? (
        <NewToken
          user={user}
          done={(t) => {
            setMade(t)
            void changed()
          }}
        />
      ) : (
        <Content component="p">People make their own tokens, in their settings.</Content>
      )}
    </Dialog>
  )
}

function NewToken({ user, done }: { user: string; done: (t: Schemas['CreatedToken']) => void }) {
  const [wish, setWish] = useState(noWish)
  const { busy, failed, act } = useAct()
  const submit = (e: FormEvent) => {
    e.preventDefault()
    return act(async () => {
      done(
        await must(
          client.POST('/users/{name}/tokens', {
            params: { path: { name: user } },
            body: wished(wish),
          }),
        ),
      )
      setWish({ ...wish, name: '' })
    })
  }
  return (
    <Form onSubmit={(e) => void submit(e)} aria-label="New token">
      <TokenFields
        id="service-token"
        of={wish}
        set={setWish}
        example="nightly-report"
        all="do all that the program may"
      />
      <Command>{tokenCommand(wish, user)}</Command>
      {failed !== undefined && <ProblemAlert of={failed} />}
      <div>
        <Button type="submit" isDisabled={!wishReady(wish)} isLoading={busy}>
          Create a token
        </Button>
      </div>
    </Form>
  )
}
