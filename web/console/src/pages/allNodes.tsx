import { Tbody, Thead } from '@patternfly/react-table'
import { keepPreviousData } from '@tanstack/react-query'
import { memo } from 'react'
import { Link } from 'react-router'
import { api, list, type Schemas } from '../api/client'
import { Td, Th, Tr } from '../ui/cells'
import { ChoiceFilter, FilterBar, Pages, TextFilter } from '../ui/filters'
import { Gradually } from '../ui/gradually'
import { LongTable, share } from '../ui/longTable'
import { Answer, Nothing, Page } from '../ui/page'
import { RowLink } from '../ui/rowLink'
import { Status } from '../ui/status'
import { Time } from '../ui/time'
import { useFilters, words } from '../ui/url'

type FleetNode = Schemas['FleetNode']
type Condition = FleetNode['condition']

const conditions: [Condition, string][] = [
  ['problem', 'have a problem'],
  ['cordoned', 'are cordoned'],
  ['unseen', 'are not seen'],
  ['pending', 'are no members'],
  ['ready', 'are ready'],
]
const orders: [string, string][] = [
  ['', 'name'],
  ['cluster', 'cluster'],
  ['host', 'host'],
  ['version', 'version'],
  ['ends_at', 'certificate that ends first'],
  ['seen_at', 'seen longest ago'],
]

const columns = `${share(3)} ${share(2)} 7.5rem minmax(4.7rem, 1fr) 5rem 7.5rem ${share(1)} 6.5rem 5.5rem`

// AllNodes lists the nodes of all clusters as they were seen last.
export default function AllNodes() {
  const filters = useFilters()
  const nodes = api.useQuery(
    'get',
    '/nodes',
    {
      params: {
        query: {
          q: filters.get('q') || undefined,
          cluster: words(filters.get('cluster')),
          condition: words(filters.get('condition')),
          role: words(filters.get('role')),
          problem: filters.get('problem') === 'true' ? 'true' : undefined,
          host: filters.get('host') || undefined,
          version: filters.get('version') || undefined,
          sort: filters.get('sort') || undefined,
          continue: filters.get('continue') || undefined,
          limit: 100,
        },
      },
    },
    { placeholderData: keepPreviousData }, // the rows of before stay until those of the new filter are there
  )
  return (
    <Page title="Nodes">
      <FilterBar>
        <TextFilter filters={filters} name="q" label="Name, cluster, address, host or pool" />
        <ChoiceFilter filters={filters} name="condition" label="Condition" options={conditions.map(([c]) => [c, c])} />
        <ChoiceFilter
          filters={filters}
          name="role"
          label="Role"
          options={[
            ['master', 'master'],
            ['worker', 'worker'],
          ]}
        />
        <ChoiceFilter filters={filters} name="problem" label="Problem" options={[['true', 'has one']]} />
        <TextFilter filters={filters} name="version" label="Version, such as v1.37.1" />
        <ChoiceFilter filters={filters} name="sort" label="Order" all="name" options={orders.slice(1)} />
      </FilterBar>
      <Answer of={nodes}>
        {(answer) => (
          <>
            <Counts of={answer} filters={filters} />
            {list(answer.items).length === 0 ? (
              <Nothing title="No node is like this." />
            ) : (
              <LongTable label="Nodes of all clusters" columns={columns}>
                <Thead>
                  <Tr>
                    <Th>Node</Th>
                    <Th>Cluster</Th>
                    <Th>Condition</Th>
                    <Th>Role</Th>
                    <Th>Version</Th>
                    <Th>Address</Th>
                    <Th>Host</Th>
                    <Th>Certificates</Th>
                    <Th>Seen</Th>
                  </Tr>
                </Thead>
                <Tbody>
                  <Gradually of={list(answer.items)} name={(n) => `${n.cluster}/${n.name}`}>
                    {(n) => <Row of={n} />}
                  </Gradually>
                </Tbody>
              </LongTable>
            )}
            <Pages filters={filters} next={answer.continue} />
          </>
        )}
      </Answer>
    </Page>
  )
}

// Counts says how many nodes are in each condition, and leads to them.
function Counts({ of, filters }: { of: Schemas['FleetNodes']; filters: ReturnType<typeof useFilters> }) {
  const others = new URLSearchParams(
    ['q', 'cluster', 'role', 'problem', 'host', 'version', 'sort'].flatMap((k) => {
      const v = filters.get(k)
      return v === '' ? [] : [[k, v]]
    }),
  )
  return (
    <p aria-label="Counts">
      {of.total === 1 ? '1 node' : `${of.total} nodes`}
      {conditions
        .filter(([c]) => (of.conditions[c] ?? 0) > 0)
        .map(([c, text]) => (
          <span key={c}>
            {', '}
            <Link to={{ search: new URLSearchParams([...others, ['condition', c]]).toString() }}>
              {of.conditions[c]} {text}
            </Link>
          </span>
        ))}
    </p>
  )
}

// Row is drawn again only when its node has changed.
const Row = memo(function Row({ of: n }: { of: FleetNode }) {
  const first = list(n.certificates).find((c) => !c.unchecked)
  const why = n.problem ?? n.reason ?? n.unseen
  return (
    <Tr>
      <Td dataLabel="Node" className="word">
        <RowLink to={`/clusters/${n.cluster}/nodes/${n.name}`}>{n.name}</RowLink>
      </Td>
      <Td dataLabel="Cluster" className="word">
        <RowLink to={`/clusters/${n.cluster}/nodes`}>{n.cluster}</RowLink>
      </Td>
      <Td dataLabel="Condition">
        <Status of={n.condition} />
        {why && <div className="hint break">{why}</div>}
        {n.hint && <div className="hint mono break">{n.hint}</div>}
      </Td>
      <Td dataLabel="Role">
        {n.role}
        {n.pool && n.pool !== n.role && `, ${n.pool}`}
      </Td>
      <Td dataLabel="Version">
        {n.version ?? '–'}
        {n.wanted && n.version && n.wanted !== n.version && ` (wanted: ${n.wanted})`}
      </Td>
      <Td dataLabel="Address">{n.address ?? '–'}</Td>
      <Td dataLabel="Host">
        {n.host ?? '–'}
        {n.host_lost ? ' (lost)' : n.host_down ? ' (does not answer)' : ''}
      </Td>
      <Td dataLabel="Certificates">{first ? <Time at={first.ends_at} /> : '–'}</Td>
      <Td dataLabel="Seen">{n.seen_at ? <Time at={n.seen_at} /> : 'never'}</Td>
    </Tr>
  )
})
