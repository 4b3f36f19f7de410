import { Tbody, Thead } from '@patternfly/react-table'
import { keepPreviousData } from '@tanstack/react-query'
import { memo } from 'react'
import { api, list, type Schemas } from '../api/client'
import { acts, edits, useMe } from '../app/me'
import { Actions } from '../ui/actions'
import { Td, Th, Tr } from '../ui/cells'
import { ChoiceFilter, FilterBar, Pages, TextFilter } from '../ui/filters'
import { Gradually } from '../ui/gradually'
import { LinkButton } from '../ui/linkButton'
import { LongTable, share } from '../ui/longTable'
import { Answer, Nothing, Page } from '../ui/page'
import { RowLink } from '../ui/rowLink'
import { Status } from '../ui/status'
import { Time } from '../ui/time'
import { useFilters, words } from '../ui/url'
import { pathFor } from './campaignForm'
import { Newer } from './newer'

type Filters = ReturnType<typeof useFilters>

const statuses = ['absent', 'creating', 'unfinished', 'ready', 'changing', 'deleting', 'failed']
const orders: [string, string][] = [
  ['status', 'status'],
  ['version', 'oldest version'],
  ['-version', 'newest version'],
  ['-created_at', 'youngest'],
  ['created_at', 'oldest'],
  ['-nodes', 'most machines'],
]
const narrows = ['q', 'label', 'status', 'version', 'project', 'sort']

export default function Clusters() {
  const me = useMe()
  const filters = useFilters()
  const clusters = api.useQuery(
    'get',
    '/clusters',
    {
      params: {
        query: {
          q: filters.get('q') || undefined,
          label: words(filters.get('label')),
          status: words(filters.get('status')),
          version: words(filters.get('version')),
          project: filters.get('project') || undefined,
          sort: filters.get('sort') || undefined,
          continue: filters.get('continue') || undefined,
          limit: 100,
          facets: true,
          fields: [
            'name',
            'status',
            'nodes',
            'release',
            'version',
            'newer',
            'project',
            'plan',
            'plan_status',
            'created_at',
          ],
        },
      },
    },
    { placeholderData: keepPreviousData }, // the rows of before stay until those of the new filter are there
  )
  const change = clusters.data && pathFor(filters.get, list(clusters.data.items), isWhole(filters, clusters.data))
  const actions = (
    <Actions>
      {edits(me) && <LinkButton to="/clusters/new">New cluster</LinkButton>}
      {acts(me) && change && (
        <LinkButton variant="secondary" to={change}>
          Change these clusters
        </LinkButton>
      )}
    </Actions>
  )
  return (
    <Page title="Clusters" actions={actions}>
      <FilterBar>
        <TextFilter filters={filters} name="q" label="Name, project, release, address or label" />
        <TextFilter filters={filters} name="label" label="Label, such as env=prod" />
        <ChoiceFilter filters={filters} name="status" label="Status" options={statuses.map((s) => [s, s])} />
        <TextFilter filters={filters} name="version" label="Version, such as v1.37" />
        <TextFilter filters={filters} name="project" label="Project" />
        <ChoiceFilter filters={filters} name="sort" label="Order" all="name" options={orders} />
      </FilterBar>
      <Answer of={clusters}>
        {(c) => (
          <>
            {c.facets && <Counts total={c.total ?? 0} of={c.facets} filters={filters} />}
            {list(c.items).length === 0 ? <Nothing title="No cluster is like this." /> : <Rows of={list(c.items)} />}
            <Pages filters={filters} next={c.continue} />
          </>
        )}
      </Answer>
    </Page>
  )
}

// isWhole reports whether the page has all clusters that the filters leave.
const isWhole = (filters: Filters, of: { continue?: string }) => filters.get('continue') === '' && !of.continue

const most = 8 // of each kind

// Counts says how many clusters the filters leave, and of what. Each number leads to these clusters.
function Counts({ total, of, filters }: { total: number; of: Schemas['Facets']; filters: Filters }) {
  const led = (name: string, value: string) => {
    const search = new URLSearchParams()
    for (const k of narrows) if (filters.get(k) !== '') search.set(k, filters.get(k))
    search.set(name, value)
    return `/clusters?${search}`
  }
  const groups: [name: string, text: string, counts: Record<string, number>][] = [
    ['status', '', of.status],
    ['version', 'running ', of.version],
    ['project', 'in project ', of.project],
  ]
  return (
    <p aria-label="Counts">
      {total === 1 ? '1 cluster' : `${total} clusters`}
      {groups.map(([name, text, counts]) =>
        Object.entries(counts)
          .sort((a, b) => b[1] - a[1])
          .slice(0, most)
          .map(([value, n]) => (
            <span key={`${name} ${value}`}>
              {', '}
              <RowLink to={led(name, value)} className="break">
                {`${n} ${text}${value}`}
              </RowLink>
            </span>
          )),
      )}
    </p>
  )
}

const columns = `${share(2)} 7.5rem ${share(1)} 5.5rem ${share(1)} ${share(1)} ${share(1.7)} 6rem`

// Rows are drawn again only when the director has answered: a filter of many clusters must be quick.
const Rows = memo(function Rows({ of }: { of: Schemas['Cluster'][] }) {
  return (
    <LongTable label="Clusters" columns={columns}>
      <Thead>
        <Tr>
          <Th>Cluster</Th>
          <Th>Status</Th>
          <Th>Version</Th>
          <Th>Machines</Th>
          <Th>Release</Th>
          <Th>Project</Th>
          <Th>Plan</Th>
          <Th>Described</Th>
        </Tr>
      </Thead>
      <Tbody>
        <Gradually of={of} name={(one) => one.name}>
          {(one) => <Row of={one} />}
        </Gradually>
      </Tbody>
    </LongTable>
  )
})

// Row is drawn again only when its cluster has changed.
const Row = memo(function Row({ of: one }: { of: Schemas['Cluster'] }) {
  return (
    <Tr>
      <Td dataLabel="Cluster">
        <RowLink to={`/clusters/${one.name}`} className="break">
          {one.name}
        </RowLink>
      </Td>
      <Td dataLabel="Status">
        <Status of={one.status} />
      </Td>
      <Td dataLabel="Version">
        {one.version ?? '–'}
        {one.newer && (
          <div className="hint">
            <Newer of={one} />
          </div>
        )}
      </Td>
      <Td dataLabel="Machines">{one.nodes}</Td>
      <Td dataLabel="Release">{one.release}</Td>
      <Td dataLabel="Project">{one.project || '–'}</Td>
      <Td dataLabel="Plan">
        {one.plan ? (
          <RowLink to={`/plans/${one.plan}`}>
            <Status of={one.plan_status ?? ''} />
          </RowLink>
        ) : (
          '–'
        )}
      </Td>
      <Td dataLabel="Described">
        <Time at={one.created_at} />
      </Td>
    </Tr>
  )
})
