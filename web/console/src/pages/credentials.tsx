import { Content, FormGroup, TextInput } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { useQueryClient } from '@tanstack/react-query'
import { useState, type ReactNode } from 'react'
import { Link } from 'react-router'
import { api, client, list } from '../api/client'
import { must } from '../api/must'
import { useMe } from '../app/me'
import { ActionsCell } from '../ui/actionsCell'
import { Ask, AskButton } from '../ui/ask'
import { Td, Th, Tr } from '../ui/cells'
import { Command, quoted } from '../ui/command'
import { Answer, Nothing } from '../ui/page'
import { Time } from '../ui/time'

// Credentials are the names and passwords with which the director logs in elsewhere. A password is never shown again.
export function Credentials() {
  const me = useMe()
  const queries = useQueryClient()
  const [asks, setAsks] = useState<ReactNode>()
  const asked = api.useQuery('get', '/credentials', {})
  const changed = () => queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/credentials' })
  const mayAct = me.role === 'admin' && me.scope === 'all'
  const close = () => setAsks(undefined)
  const remove = (name: string) => (
    <Ask
      title={`Delete the credentials ${name}?`}
      verb="Delete"
      danger
      close={close}
      act={async () => {
        await must(client.DELETE('/credentials/{name}', { params: { path: { name } } }))
        void changed()
      }}
    >
      <Content component="p">Only credentials that no document names can be deleted.</Content>
      <Command>{`directorctl provider credentials delete ${quoted(name)}`}</Command>
    </Ask>
  )
  return (
    <>
      {mayAct && (
        <AskButton ask={(shut) => <SetDialog close={shut} changed={() => void changed()} />}>Set credentials</AskButton>
      )}
      <Answer of={asked}>
        {(c) =>
          list(c.items).length === 0 ? (
            <Nothing title="There are no credentials.">
              A vCenter and some identity providers need them. Set them under the name that the document has.
            </Nothing>
          ) : (
            <Table role="table" aria-label="Credentials" variant="compact">
              <Thead>
                <Tr>
                  <Th>Name</Th>
                  <Th>User</Th>
                  <Th>For</Th>
                  <Th>Changed</Th>
                  <Th>By</Th>
                  {mayAct && <Th screenReaderText="Actions" />}
                </Tr>
              </Thead>
              <Tbody>
                {list(c.items).map((one) => (
                  <Tr key={one.name}>
                    <Td dataLabel="Name" className="break">
                      {one.name}
                    </Td>
                    <Td dataLabel="User" className="break">
                      {one.user}
                    </Td>
                    <Td dataLabel="For">
                      {list(one.providers).map((p) => (
                        <Link key={p} to={`/documents/Provider/${p}`}>
                          {p}{' '}
                        </Link>
                      ))}
                      {list(one.providers).length === 0 && '–'}
                    </Td>
                    <Td dataLabel="Changed">
                      <Time at={one.updated_at} />
                    </Td>
                    <Td dataLabel="By">{one.updated_by}</Td>
                    {mayAct && (
                      <ActionsCell
                        of={one.name}
                        items={[
                          {
                            title: 'Set again',
                            onClick: () =>
                              setAsks(
                                <SetDialog
                                  name={one.name}
                                  user={one.user}
                                  close={close}
                                  changed={() => void changed()}
                                />,
                              ),
                          },
                          { title: 'Delete', onClick: () => setAsks(remove(one.name)) },
                        ]}
                      />
                    )}
                  </Tr>
                ))}
              </Tbody>
            </Table>
          )
        }
      </Answer>
      {asks}
    </>
  )
}

export interface SetProps {
  name?: string // of credentials that are there
  user?: string
  close: () => void
  changed: () => void
}

export function SetDialog({ name: known, user: knownUser, close, changed }: SetProps) {
  const [name, setName] = useState(known ?? '')
  const [user, setUser] = useState(knownUser ?? '')
  const [password, setPassword] = useState('')
  const account = `${quoted(name || 'NAME')} --user ${quoted(user || 'USER')}`
  const command = `directorctl provider credentials set ${account}`
  return (
    <Ask
      title={known ? `Set the credentials ${known} again` : 'Set credentials'}
      verb="Set"
      close={close}
      ready={name !== '' && user !== '' && password !== ''}
      act={async () => {
        await must(client.PUT('/credentials/{name}', { params: { path: { name } }, body: { user, password } }))
        changed()
      }}
    >
      <FormGroup label="Name, as the document has it" fieldId="credentials-name" isRequired>
        <TextInput
          id="credentials-name"
          isRequired
          readOnlyVariant={known ? 'default' : undefined}
          value={name}
          autoComplete="off"
          onChange={(_, v) => setName(v)}
        />
      </FormGroup>
      <FormGroup label="User" fieldId="credentials-user" isRequired>
        <TextInput id="credentials-user" isRequired value={user} autoComplete="off" onChange={(_, v) => setUser(v)} />
      </FormGroup>
      <FormGroup label="Password" fieldId="credentials-password" isRequired>
        <TextInput
          id="credentials-password"
          type="password"
          isRequired
          value={password}
          autoComplete="new-password"
          onChange={(_, v) => setPassword(v)}
        />
      </FormGroup>
      <Command>{command}</Command>
    </Ask>
  )
}
