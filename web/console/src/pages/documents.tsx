import { Table, Tbody, Thead } from '@patternfly/react-table'
import { Link, useParams } from 'react-router'
import { api, json, list } from '../api/client'
import { edits, useMe } from '../app/me'
import { kinds, type Kind } from '../forms/kinds'
import { Td, Th, Tr } from '../ui/cells'
import { Command } from '../ui/command'
import { FilterBar, Pages, TextFilter } from '../ui/filters'
import { LinkButton } from '../ui/linkButton'
import { Answer, Nothing, Page } from '../ui/page'
import { PageTabs } from '../ui/tabs'
import { Time } from '../ui/time'
import { useFilters } from '../ui/url'

export default function Documents() {
  const { kind: named } = useParams()
  const kind = kinds.find((k) => k === named) ?? 'Provider'
  const me = useMe()
  return (
    <Page title="Documents" actions={edits(me) && <LinkButton to={`/apply?template=${kind}`}>New {kind}</LinkButton>}>
      <PageTabs label="Kinds" base="/documents" at={kind} of={kinds.map((k) => [k, k] as const)} />
      <OfKind key={kind} kind={kind} />
    </Page>
  )
}

function OfKind({ kind }: { kind: Kind }) {
  const filters = useFilters()
  const asked = api.useQuery('get', '/documents/{kind}', {
    params: {
      path: { kind },
      query: {
        name_prefix: filters.get('name') || undefined,
        continue: filters.get('continue') || undefined,
        limit: 100,
        fields: ['name', 'generation', 'updated_at', 'updated_by'],
      },
    },
  })
  return (
    <>
      <FilterBar>
        <TextFilter filters={filters} name="name" label="Name begins with" />
      </FilterBar>
      <Answer of={asked}>
        {(answer) => {
          const d = json(answer)
          return (
            <>
              {list(d.items).length === 0 ? (
                <Nothing title={`There is no ${kind} here.`} />
              ) : (
                <Table role="table" aria-label={`Documents: ${kind}`} variant="compact">
                  <Thead>
                    <Tr>
                      <Th>Name</Th>
                      <Th>Generation</Th>
                      <Th>Changed</Th>
                      <Th>By</Th>
                    </Tr>
                  </Thead>
                  <Tbody>
                    {list(d.items).map((one) => (
                      <Tr key={one.name}>
                        <Td dataLabel="Name">
                          <Link className="break" to={`/documents/${kind}/${one.name}`}>
                            {one.name}
                          </Link>
                        </Td>
                        <Td dataLabel="Generation">{one.generation}</Td>
                        <Td dataLabel="Changed">
                          <Time at={one.updated_at} />
                        </Td>
                        <Td dataLabel="By">{one.updated_by}</Td>
                      </Tr>
                    ))}
                  </Tbody>
                </Table>
              )}
              <Pages filters={filters} next={d.continue} />
              <Command>{`directorctl get ${kind.toLowerCase()}`}</Command>
            </>
          )
        }}
      </Answer>
    </>
  )
}
