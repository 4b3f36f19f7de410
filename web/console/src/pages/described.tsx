// Documents of some kinds as tables of what they say, with the way to change them.
import { Content } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { Link } from 'react-router'
import { api, json, list } from '../api/client'
import { edits, useMe } from '../app/me'
import type { Kind } from '../forms/kinds'
import { Td, Th, Tr } from '../ui/cells'
import { Command } from '../ui/command'
import { FilterBar, Pages } from '../ui/filters'
import { LinkButton } from '../ui/linkButton'
import { Answer, Nothing } from '../ui/page'
import { useFilters } from '../ui/url'

type Spec = Record<string, unknown>
type Column = [title: string, of: (spec: Spec) => string]

// said is a part of a document as a person reads it.
function said(value: unknown): string {
  if (value === undefined || value === null || value === '') return '–'
  if (Array.isArray(value)) return value.length === 0 ? '–' : value.map(said).join(', ')
  if (typeof value === 'object') {
    return Object.entries(value)
      .map(([k, v]) => `${k} ${said(v)}`)
      .join(', ')
  }
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? String(value) : '–'
}

const people = (spec: Spec) =>
  said([
    ...(Array.isArray(spec.users) ? (spec.users as string[]) : []),
    ...(Array.isArray(spec.groups) ? (spec.groups as string[]).map((g) => `group ${g}`) : []),
  ])

const pool = (spec: Spec) => {
  const p = (spec.pool ?? {}) as Spec
  const range = p.from === undefined ? [] : [`${said(p.from)}-${said(p.to)}`]
  return said([...range, ...(Array.isArray(p.ranges) ? (p.ranges as string[]) : [])])
}

export const tables = {
  Grant: {
    about: 'A grant gives people a role in one project or on one cluster, beyond their own role.',
    columns: [
      ['Who', people],
      ['Role', (s) => said(s.role)],
      [
        'On',
        (s) => (s.cluster ? `cluster ${said(s.cluster)}` : s.project ? `project ${said(s.project)}` : 'everything'),
      ],
    ],
  },
  Project: {
    about: 'A project is a set of clusters with its people and its quota.',
    columns: [
      ['For', (s) => said(s.description)],
      ['Quota', (s) => said(s.quota)],
      ['Providers', (s) => said(s.providers)],
    ],
  },
  IdentityProvider: {
    about: 'Where people log in besides the director. Groups get roles.',
    columns: [
      ['Type', (s) => said(s.type)],
      ['Shown as', (s) => said(s.title)],
      ['Address', (s) => said(s.issuer ?? s.url ?? s.urls)],
    ],
  },
  Network: {
    about: 'Where nodes are, and the addresses that the director may give them.',
    columns: [
      ['Provider', (s) => said(s.provider)],
      ['Mode', (s) => said(s.mode)],
      ['Range', (s) => said(s.cidr)],
      ['Addresses for nodes', pool],
    ],
  },
} satisfies Partial<Record<Kind, { about: string; columns: Column[] }>>

export function Described({ kind }: { kind: keyof typeof tables }) {
  const me = useMe()
  const filters = useFilters()
  const asked = api.useQuery('get', '/documents/{kind}', {
    params: { path: { kind }, query: { limit: 100, continue: filters.get('continue') || undefined } },
  })
  const columns: Column[] = tables[kind].columns as Column[]
  return (
    <div className="stack">
      <Content component="p">{tables[kind].about}</Content>
      {edits(me) && (
        <FilterBar>
          <LinkButton to={`/apply?template=${kind}`}>New {kind}</LinkButton>
        </FilterBar>
      )}
      <Answer of={asked}>
        {(answer) => {
          const d = json(answer)
          return list(d.items).length === 0 ? (
            <Nothing title={`There is no ${kind} yet.`} />
          ) : (
            <>
              <Table role="table" aria-label={kind} variant="compact">
                <Thead>
                  <Tr>
                    <Th>Name</Th>
                    {columns.map(([title]) => (
                      <Th key={title}>{title}</Th>
                    ))}
                  </Tr>
                </Thead>
                <Tbody>
                  {list(d.items).map((one) => {
                    const spec = ((one.document as { spec?: Spec } | undefined)?.spec ?? {}) as Spec
                    return (
                      <Tr key={one.name}>
                        <Td dataLabel="Name">
                          <Link className="break" to={`/documents/${kind}/${one.name}`}>
                            {one.name}
                          </Link>
                        </Td>
                        {columns.map(([title, of]) => (
                          <Td key={title} dataLabel={title} className="break">
                            {of(spec)}
                          </Td>
                        ))}
                      </Tr>
                    )
                  })}
                </Tbody>
              </Table>
              <Pages filters={filters} next={d.continue} />
              <Command>{`directorctl get ${kind.toLowerCase()}`}</Command>
            </>
          )
        }}
      </Answer>
    </div>
  )
}
