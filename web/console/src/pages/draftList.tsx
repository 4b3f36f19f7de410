import { Button, Card, CardBody, CardTitle, Content } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useEffect } from 'react'
import { Link } from 'react-router'
import { useMe } from '../app/me'
import { addressOf, dropDraft, lifetime, listDrafts, listen, type Draft } from '../forms/drafts'
import { Alert } from '../ui/alert'
import { Ask, AskButton } from '../ui/ask'
import { Td, Th, Tr } from '../ui/cells'
import { size } from '../ui/size'
import { Time } from '../ui/time'

const titleOf = (d: Draft) => {
  if (d.key === 'new cluster') return 'New cluster'
  const [first = '', second = ''] = d.key.split('/')
  return first === 'new' ? `New ${second || 'documents'}` : d.key
}

// Drafts are what was written in this browser and not stored in the director.
export function Drafts() {
  const me = useMe()
  const queries = useQueryClient()
  const asked = useQuery({
    queryKey: ['drafts', me.user],
    queryFn: () => listDrafts(me.user),
    networkMode: 'always',
    staleTime: 0,
  })
  const again = () => queries.invalidateQueries({ queryKey: ['drafts', me.user] })
  useEffect(() => listen(() => void queries.invalidateQueries({ queryKey: ['drafts', me.user] })), [queries, me.user])
  const drafts = asked.data?.drafts ?? []
  const drop = async (which: Draft[]) => {
    for (const d of which) await dropDraft(d.user, d.key)
    await again()
  }
  return (
    <Card component="section">
      <CardTitle component="h2">Drafts in this browser</CardTitle>
      <CardBody className="stack">
        <Content component="p">
          What you write is kept here until it is applied, for {lifetime / 86_400_000} days after its last change. Who
          may use this browser on this computer may read it. It holds no passwords.
        </Content>
        {asked.data && !asked.data.stores && (
          <Alert isInline variant="warning" title="This browser stores nothing.">
            Drafts are lost when their tab is closed.
          </Alert>
        )}
        {drafts.length === 0 ? (
          <p>There are no drafts.</p>
        ) : (
          <>
            <Table role="table" aria-label="Drafts" variant="compact">
              <Thead>
                <Tr>
                  <Th>Draft</Th>
                  <Th>Changed</Th>
                  <Th>Size</Th>
                  <Th screenReaderText="Actions" />
                </Tr>
              </Thead>
              <Tbody>
                {drafts.map((d) => (
                  <Tr key={d.key}>
                    <Td dataLabel="Draft" className="break">
                      <Link to={addressOf(d.key)}>{titleOf(d)}</Link>
                    </Td>
                    <Td dataLabel="Changed">
                      <Time at={new Date(d.at).toISOString()} />
                    </Td>
                    <Td dataLabel="Size">{size(d.text.length)}</Td>
                    <Td isActionCell>
                      <Button
                        variant="link"
                        isInline
                        isDanger
                        aria-label={`Delete the draft ${titleOf(d)}`}
                        onClick={() => void drop([d])}
                      >
                        Delete
                      </Button>
                    </Td>
                  </Tr>
                ))}
              </Tbody>
            </Table>
            <AskButton
              variant="secondary"
              isDanger
              ask={(close) => (
                <Ask title="Delete all drafts?" verb="Delete" danger close={close} act={() => drop(drafts)}>
                  <Content component="p">What they say is lost. Documents of the director stay as they are.</Content>
                </Ask>
              )}
            >
              Delete all
            </AskButton>
          </>
        )}
      </CardBody>
    </Card>
  )
}
