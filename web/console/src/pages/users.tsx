import {
  Checkbox,
  ClipboardCopy,
  Content,
  FormGroup,
  FormSelect,
  FormSelectOption,
  TextInput,
} from '@patternfly/react-core'
import { ActionsColumn, Table, Tbody, Thead } from '@patternfly/react-table'
import { useQueryClient } from '@tanstack/react-query'
import { useState, type ReactNode } from 'react'
import { useParams } from 'react-router'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { useMe } from '../app/me'
import { Ask, AskButton } from '../ui/ask'
import { Td, Th, Tr } from '../ui/cells'
import { Command, quoted } from '../ui/command'
import { FilterBar, Pages, TextFilter } from '../ui/filters'
import { Answer, Nothing, Page } from '../ui/page'
import { Time } from '../ui/time'
import { PageTabs } from '../ui/tabs'
import { useFilters } from '../ui/url'
import { Described } from './described'
import { IdentityTests } from './identityTests'
import { UserSessions, UserTokens } from './userAccess'
import { Alert } from '../ui/alert'

type User = Schemas['User']
type Role = NonNullable<Schemas['NewUser']['role']>
const roles: Role[] = ['admin', 'operator', 'user', 'auditor', 'none']

const tabs = [
  ['all', 'Users'],
  ['grants', 'Grants'],
  ['projects', 'Projects'],
  ['providers', 'Identity providers'],
] as const

export default function Users() {
  const { tab = 'all' } = useParams()
  if (tab === 'all') return <UserList />
  return (
    <Page title="Users">
      <PageTabs label="People and what they may" base="/users" at={tab} of={tabs} />
      <div className="after">
        {tab === 'grants' && <Described kind="Grant" />}
        {tab === 'projects' && <Described kind="Project" />}
        {tab === 'providers' && (
          <div className="stack">
            <Described kind="IdentityProvider" />
            <IdentityTests />
          </div>
        )}
      </div>
    </Page>
  )
}

function UserList() {
  const me = useMe()
  const filters = useFilters()
  const queries = useQueryClient()
  const [issued, setIssued] = useState<Schemas['OneTimePassword']>()
  const [asks, setAsks] = useState<ReactNode>()
  const asked = api.useQuery('get', '/users', {
    params: {
      query: { name: filters.get('name') || undefined, continue: filters.get('continue') || undefined, limit: 100 },
    },
  })
  const mayAct = me.role === 'admin' && me.scope === 'all'
  const changed = () => queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/users' })
  return (
    <Page
      title="Users"
      actions={
        mayAct && (
          <NewUser
            done={(p) => {
              setIssued(p)
              void changed()
            }}
          />
        )
      }
    >
      <PageTabs label="People and what they may" base="/users" at="all" of={tabs} />
      {issued?.password && (
        <Alert
          isInline
          variant="info"
          title={`The one-time password of ${issued.user.name}. It is shown only here and now.`}
        >
          <ClipboardCopy isReadOnly isCode hoverTip="Copy" clickTip="Copied" textAriaLabel="One-time password">
            {issued.password}
          </ClipboardCopy>
          {issued.expires_at && (
            <p>
              It is good until <Time at={issued.expires_at} />.
            </p>
          )}
        </Alert>
      )}
      <FilterBar>
        <TextFilter filters={filters} name="name" label="Part of the name" />
      </FilterBar>
      <Answer of={asked}>
        {(u) => (
          <>
            {list(u.items).length === 0 ? (
              <Nothing title="No user is like this." />
            ) : (
              <Table role="table" aria-label="Users" variant="compact">
                <Thead>
                  <Tr>
                    <Th>User</Th>
                    <Th>Role</Th>
                    <Th>From</Th>
                    <Th>Last log-in</Th>
                    <Th>State</Th>
                    {mayAct && <Th screenReaderText="Actions" />}
                  </Tr>
                </Thead>
                <Tbody>
                  {list(u.items).map((one) => (
                    <Tr key={one.name}>
                      <Td dataLabel="User" className="break">
                        {one.name}
                        {one.full_name && ` (${one.full_name})`}
                      </Td>
                      <Td dataLabel="Role">
                        {one.role}
                        {one.service && ', a program'}
                      </Td>
                      <Td dataLabel="From">{one.provider ?? 'the director'}</Td>
                      <Td dataLabel="Last log-in">
                        <Time at={one.login_at} />
                      </Td>
                      <Td dataLabel="State">
                        {one.disabled_at ? 'disabled' : one.must_change_password ? 'has a one-time password' : 'active'}
                      </Td>
                      {mayAct && (
                        <Td isActionCell>
                          <Verbs
                            of={one}
                            open={setAsks}
                            close={() => setAsks(undefined)}
                            issued={setIssued}
                            changed={() => void changed()}
                          />
                        </Td>
                      )}
                    </Tr>
                  ))}
                </Tbody>
              </Table>
            )}
            <Pages filters={filters} next={u.continue} />
          </>
        )}
      </Answer>
      {asks}
    </Page>
  )
}

function NewUser({ done }: { done: (p: Schemas['OneTimePassword']) => void }) {
  const [name, setName] = useState('')
  const [role, setRole] = useState<Role>('user')
  const [service, setService] = useState(false)
  return (
    <AskButton
      ask={(close) => (
        <Ask
          title="New user"
          verb="Create"
          ready={name !== ''}
          close={close}
          act={async () => {
            done(await must(client.POST('/users', { body: { name, role, service } })))
            setName('')
          }}
        >
          <FormGroup label="Name" fieldId="user-name" isRequired>
            <TextInput id="user-name" isRequired value={name} autoComplete="off" onChange={(_, v) => setName(v)} />
          </FormGroup>
          <FormGroup label="Role" fieldId="user-role">
            <RoleSelect id="user-role" role={role} set={setRole} />
          </FormGroup>
          <Checkbox
            id="user-service"
            label="A program, not a person"
            isChecked={service}
            onChange={(_, v) => setService(v)}
            description="It has no password, only API tokens."
          />
          <Command>
            {`directorctl users create ${quoted(name || 'NAME')} --role ${role}${service ? ' --service' : ''}`}
          </Command>
        </Ask>
      )}
    >
      New user
    </AskButton>
  )
}

function RoleSelect({ id, role, set }: { id: string; role: Role; set: (r: Role) => void }) {
  return (
    <FormSelect id={id} value={role} onChange={(_, v) => set(v as Role)}>
      {roles.map((r) => (
        <FormSelectOption key={r} value={r} label={r} />
      ))}
    </FormSelect>
  )
}

interface VerbsProps {
  of: User
  open: (ask: ReactNode) => void
  close: () => void
  issued: (p: Schemas['OneTimePassword']) => void
  changed: () => void
}

interface Question {
  title: string
  verb: string
  text: string
  command: string // of directorctl users
  danger?: boolean
}

function Verbs({ of, open, close, issued, changed }: VerbsProps) {
  const path = { params: { path: { name: of.name } } }
  const ask = ({ title, verb, text, command, danger }: Question, act: () => Promise<unknown>) =>
    open(
      <Ask
        title={title}
        verb={verb}
        danger={danger}
        close={close}
        act={async () => {
          await act()
          changed()
        }}
      >
        <Content component="p">{text}</Content>
        <Command>{`directorctl users ${command} ${quoted(of.name)}`}</Command>
      </Ask>,
    )
  const local = !of.provider && !of.service
  return (
    <ActionsColumn
      aria-label={`Actions on ${of.name}`}
      popperProps={{ position: 'right' }}
      items={[
        ...(of.provider
          ? []
          : [
              { title: 'Change the role', onClick: () => open(<RoleDialog of={of} close={close} changed={changed} />) },
            ]),
        ...(local
          ? [
              {
                title: 'Give a one-time password',
                onClick: () =>
                  ask(
                    {
                      title: `Give ${of.name} a one-time password?`,
                      verb: 'Give',
                      text: 'The old password and all sessions end.',
                      command: 'reset-password',
                    },
                    async () => issued(await must(client.POST('/users/{name}/reset-password', path))),
                  ),
              },
            ]
          : []),
        {
          title: 'API tokens',
          onClick: () => open(<UserTokens user={of.name} service={of.service === true} close={close} />),
        },
        ...(of.service
          ? []
          : [{ title: 'Sessions', onClick: () => open(<UserSessions user={of.name} close={close} />) }]),
        of.disabled_at
          ? {
              title: 'Enable',
              onClick: () =>
                ask(
                  {
                    title: `Enable ${of.name}?`,
                    verb: 'Enable',
                    text: 'The user can log in again.',
                    command: 'enable',
                  },
                  () => must(client.POST('/users/{name}/enable', path)),
                ),
            }
          : {
              title: 'Disable',
              onClick: () =>
                ask(
                  {
                    title: `Disable ${of.name}?`,
                    verb: 'Disable',
                    text: 'All sessions end, and no token is good any more.',
                    command: 'disable',
                    danger: true,
                  },
                  () => must(client.POST('/users/{name}/disable', path)),
                ),
            },
        {
          title: 'Delete',
          onClick: () =>
            ask(
              {
                title: `Delete ${of.name}?`,
                verb: 'Delete',
                text: 'What the user did stays in the audit trail.',
                command: 'delete',
                danger: true,
              },
              () => must(client.DELETE('/users/{name}', path)),
            ),
        },
      ]}
    />
  )
}

function RoleDialog({ of, close, changed }: { of: User; close: () => void; changed: () => void }) {
  const [role, setRole] = useState<Role>(roles.find((r) => r === of.role) ?? 'none')
  return (
    <Ask
      title={`Role of ${of.name}`}
      verb="Change"
      close={close}
      act={async () => {
        await must(client.POST('/users/{name}/role', { params: { path: { name: of.name } }, body: { role } }))
        changed()
      }}
    >
      <FormGroup label="Role" fieldId="role">
        <RoleSelect id="role" role={role} set={setRole} />
      </FormGroup>
      <Command>{`directorctl users role ${quoted(of.name)} ${role}`}</Command>
    </Ask>
  )
}
