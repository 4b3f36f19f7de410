import { Card, CardBody, CardTitle } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { Link } from 'react-router'
import { api, json, list, type Schemas } from '../api/client'
import { Td, Th, Tr } from '../ui/cells'
import { Command, quoted } from '../ui/command'
import { ChoiceFilter, FilterBar, Pages, TextFilter } from '../ui/filters'
import { Answer, Facts, Nothing } from '../ui/page'
import { useFilters } from '../ui/url'

type Address = Schemas['NetworkAddress']

const uses: [Address['use'], string][] = [
  ['node', 'of a node'],
  ['virtual', 'virtual, of an API'],
  ['static', 'for a node that is not made yet'],
  ['gateway', 'gateway'],
  ['router', 'router'],
  ['dns', 'name server'],
  ['excluded', 'excluded from the pool'],
]

// Addresses are those of a network that are in use: whose they are, and how many of the pool are free.
export function Addresses({ network }: { network: string }) {
  const filters = useFilters()
  const use = filters.get('use')
  const asked = api.useQuery('get', '/networks/{name}/addresses', {
    params: {
      path: { name: network },
      query: {
        q: filters.get('q') || undefined,
        use: use ? [use] : undefined,
        continue: filters.get('continue') || undefined,
        limit: 100,
      },
    },
  })
  return (
    <Card component="section">
      <CardTitle component="h2">Addresses in use</CardTitle>
      <CardBody className="stack">
        <FilterBar>
          <TextFilter filters={filters} name="q" label="Address, node or cluster" />
          <ChoiceFilter filters={filters} name="use" label="Use" options={uses} />
        </FilterBar>
        <Answer of={asked}>
          {(answer) => {
            const a = json(answer)
            return (
              <>
                <Facts
                  of={[
                    ['Pool', `${a.pool} addresses`],
                    ['Used by nodes', String(a.used)],
                    ['Free', String(a.free)],
                  ]}
                />
                {list(a.items).length === 0 ? (
                  <Nothing title="No address is like this." />
                ) : (
                  <AddressTable of={list(a.items)} />
                )}
                <Pages filters={filters} next={a.continue} />
              </>
            )
          }}
        </Answer>
        <Command>{`directorctl network addresses ${quoted(network)}`}</Command>
      </CardBody>
    </Card>
  )
}

function AddressTable({ of }: { of: Address[] }) {
  return (
    <Table role="table" aria-label="Addresses" variant="compact">
      <Thead>
        <Tr>
          <Th>Address</Th>
          <Th>Use</Th>
          <Th>Cluster</Th>
          <Th>Node</Th>
          <Th>State</Th>
        </Tr>
      </Thead>
      <Tbody>
        {of.map((a) => (
          <Tr key={`${a.address} ${a.use} ${a.cluster} ${a.machine}`}>
            <Td dataLabel="Address" className="break">
              {a.address}
            </Td>
            <Td dataLabel="Use">{uses.find(([u]) => u === a.use)?.[1]}</Td>
            <Td dataLabel="Cluster" className="break">
              {a.cluster ? <Link to={`/clusters/${a.cluster}`}>{a.cluster}</Link> : '–'}
            </Td>
            <Td dataLabel="Node" className="break">
              {a.machine && a.cluster ? <Link to={`/clusters/${a.cluster}/nodes/${a.machine}`}>{a.machine}</Link> : '–'}
            </Td>
            <Td dataLabel="State">{a.state ?? '–'}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}
