import { Table, Tbody, Td, Th, Thead, Tr } from '@patternfly/react-table'
import { keepPreviousData } from '@tanstack/react-query'
import { memo } from 'react'
import { Link } from 'react-router'
import { api, list, type Schemas } from '../api/client'
import { edits, useMe } from '../app/me'
import { ChoiceFilter, FilterBar, Pages, TextFilter } from '../ui/filters'
import { LinkButton } from '../ui/linkButton'
import { Answer, Nothing, Page } from '../ui/page'
import { Status } from '../ui/status'
import { useFilters, words } from '../ui/url'

const statuses = ['absent', 'creating', 'unfinished', 'ready', 'changing', 'deleting', 'failed']

export default function Clusters() {
  const me = useMe()
  const filters = useFilters()
  const clusters = api.useQuery(
    'get',
    '/clusters',
    {
      params: {
        query: {
          name_prefix: filters.get('name') || undefined,
          label: words(filters.get('label')),
          status: words(filters.get('status')),
          project: filters.get('project') || undefined,
          continue: filters.get('continue') || undefined,
          limit: 100,
          fields: ['name', 'status', 'nodes', 'release', 'project', 'plan', 'plan_status', 'endpoint'],
        },
      },
    },
    { placeholderData: keepPreviousData }, // the rows of before stay until those of the new filter are there
  )
  return (
    <Page title="Clusters" actions={edits(me) && <LinkButton to="/clusters/new">New cluster</LinkButton>}>
      <FilterBar>
        <TextFilter filters={filters} name="name" label="Name begins with" />
        <TextFilter filters={filters} name="label" label="Label, such as env=prod" />
        <ChoiceFilter filters={filters} name="status" label="Status" options={statuses.map((s) => [s, s])} />
        <TextFilter filters={filters} name="project" label="Project" />
      </FilterBar>
      <Answer of={clusters}>
        {(c) => (
          <>
            {list(c.items).length === 0 ? (
              <Nothing title="No cluster is like this." />
            ) : (
              <Table role="table" aria-label="Clusters" variant="compact">
                <Thead>
                  <Tr>
                    <Th>Cluster</Th>
                    <Th>Status</Th>
                    <Th>Machines</Th>
                    <Th>Release</Th>
                    <Th>Project</Th>
                    <Th>Plan</Th>
                  </Tr>
                </Thead>
                <Tbody>
                  {list(c.items).map((one) => (
                    <Row key={one.name} of={one} />
                  ))}
                </Tbody>
              </Table>
            )}
            <Pages filters={filters} next={c.continue} />
          </>
        )}
      </Answer>
    </Page>
  )
}

// Row is drawn again only when its cluster has changed: a filter of many clusters must be quick.
const Row = memo(function Row({ of: one }: { of: Schemas['Cluster'] }) {
  return (
    <Tr>
      <Td dataLabel="Cluster">
        <Link to={`/clusters/${one.name}`} className="break">
          {one.name}
        </Link>
      </Td>
      <Td dataLabel="Status">
        <Status of={one.status} />
      </Td>
      <Td dataLabel="Machines">{one.nodes}</Td>
      <Td dataLabel="Release">{one.release}</Td>
      <Td dataLabel="Project">{one.project || '–'}</Td>
      <Td dataLabel="Plan">
        {one.plan ? (
          <Link to={`/plans/${one.plan}`}>
            <Status of={one.plan_status ?? ''} />
          </Link>
        ) : (
          '–'
        )}
      </Td>
    </Tr>
  )
})
