// What people and programs get in with, as lists: the same for one's own and for those of other users.
import { Button, ClipboardCopy, FormGroup, FormSelect, FormSelectOption, TextInput } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import type { ReactNode } from 'react'
import type { Schemas } from '../api/client'
import { Alert } from '../ui/alert'
import { Td, Th, Tr } from '../ui/cells'
import { quoted } from '../ui/command'
import { Time } from '../ui/time'

interface SessionsProps {
  of: Schemas['LoginSession'][]
  label: string
  end: (id: string) => void
}

// SessionTable shows sessions, each of which can be ended, but for that of the browser itself.
export function SessionTable({ of, label, end }: SessionsProps) {
  return (
    <Table role="table" aria-label={label} variant="compact">
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
        {of.map((one) => (
          <Tr key={one.id}>
            <Td dataLabel="Since">
              <Time at={one.created_at} />
              <div className="hint break">{one.id}</div>
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
  )
}

interface TokensProps {
  of: Schemas['APIToken'][]
  label: string
  action: (token: Schemas['APIToken']) => ReactNode
}

// TokenTable shows API tokens, each with what a person can do with it.
export function TokenTable({ of, label, action }: TokensProps) {
  return (
    <Table role="table" aria-label={label} variant="compact">
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
        {of.map((one) => (
          <Tr key={one.id}>
            <Td dataLabel="Name" className="break">
              {one.name}
              <div className="hint break">{one.id}</div>
            </Td>
            <Td dataLabel="For">{one.scope}</Td>
            <Td dataLabel="Last used">
              <Time at={one.used_at} />
            </Td>
            <Td dataLabel="Ends">
              <Time at={one.expires_at} />
            </Td>
            <Td>{action(one)}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}

// MadeToken shows a token in the only moment in which the director knows it.
export function MadeToken({ of }: { of: Schemas['CreatedToken'] }) {
  return (
    <Alert isInline variant="info" title={`The token ${of.record.name}. It is shown only here and now.`}>
      <ClipboardCopy isReadOnly isCode hoverTip="Copy" clickTip="Copied" textAriaLabel="Token">
        {of.token}
      </ClipboardCopy>
    </Alert>
  )
}

export interface TokenWish {
  name: string
  scope: NonNullable<Schemas['NewToken']['scope']>
  days: string
}

export const noWish: TokenWish = { name: '', scope: 'read', days: '90' }

export const wishReady = (w: TokenWish) => w.name !== '' && Number(w.days) > 0

// tokenCommand makes such a token with directorctl.
export function tokenCommand(w: TokenWish, user?: string): string {
  const whose = user === undefined ? '' : ` --user ${quoted(user)}`
  return `directorctl users create-token ${quoted(w.name || 'NAME')}${whose} --scope ${w.scope} --days ${w.days}`
}

// wished is what the API is asked for.
export const wished = (w: TokenWish) => ({ name: w.name, scope: w.scope, days: Number(w.days) })

interface FieldsProps {
  id: string // of this form, as the beginning of the fields' ids
  of: TokenWish
  set: (w: TokenWish) => void
  example: string
  all: string // what a token for all may do
}

// TokenFields ask what a new token is called, what it may do, and for how long.
export function TokenFields({ id, of, set, example, all }: FieldsProps) {
  return (
    <>
      <FormGroup label="Name" fieldId={`${id}-name`} isRequired>
        <TextInput
          id={`${id}-name`}
          isRequired
          placeholder={`such as ${example}`}
          autoComplete="off"
          value={of.name}
          onChange={(_, name) => set({ ...of, name })}
        />
      </FormGroup>
      <FormGroup label="It may" fieldId={`${id}-scope`}>
        <FormSelect
          id={`${id}-scope`}
          value={of.scope}
          onChange={(_, v) => set({ ...of, scope: v as TokenWish['scope'] })}
        >
          <FormSelectOption value="read" label="read" />
          <FormSelectOption value="phases" label="ask for phases" />
          <FormSelectOption value="all" label={all} />
        </FormSelect>
      </FormGroup>
      <FormGroup label="Days that it is good" fieldId={`${id}-days`}>
        <TextInput id={`${id}-days`} inputMode="numeric" value={of.days} onChange={(_, days) => set({ ...of, days })} />
      </FormGroup>
    </>
  )
}
