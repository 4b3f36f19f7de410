import { Card, CardBody, CardTitle, Content } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { Link } from 'react-router'
import { api, list, type Schemas } from '../api/client'
import type { Plan } from '../plan/plan'
import { Beside } from '../ui/beside'
import { Td, Th, Tr } from '../ui/cells'
import { Answer, Nothing } from '../ui/page'

// PlanDocuments shows the documents that a plan was made from, and what has changed in the one that it puts into force.
export function PlanDocuments({ plan }: { plan: Plan }) {
  const asked = api.useQuery('get', '/plans/{id}/documents', { params: { path: { id: plan.id } } })
  return (
    <div className="stack">
      <Answer of={asked}>
        {(answer) =>
          answer.items.map((d) => <Changed key={d.name} of={d} first={plan.operation === 'cluster.create'} />)
        }
      </Answer>
      <Models plan={plan} />
    </div>
  )
}

function Changed({ of: d, first }: { of: Schemas['PlanDocument']; first: boolean }) {
  const same = d.former_text === d.text
  return (
    <Card component="section">
      <CardTitle component="h2">{`What changes in ${d.kind}/${d.name}`}</CardTitle>
      <CardBody>
        {d.former_text === undefined ? (
          <Content component="p">
            {first
              ? 'All of it is new: it is the first document of the cluster that a plan puts into force.'
              : 'The plan does not have the document that was in force before.'}
          </Content>
        ) : same ? (
          <Content component="p">Nothing: the same document was in force when the plan was made.</Content>
        ) : (
          <Beside
            left={d.former_text}
            right={d.text}
            titles={[`In force, generation ${d.former}`, `This plan, generation ${d.generation}`]}
          />
        )}
      </CardBody>
    </Card>
  )
}

function Models({ plan }: { plan: Plan }) {
  const models = list(plan.models)
  if (models.length === 0) return <Nothing title="It was made from no documents." />
  return (
    <Table role="table" aria-label="Documents" variant="compact">
      <Thead>
        <Tr>
          <Th>Document</Th>
          <Th>Generation that the plan has</Th>
        </Tr>
      </Thead>
      <Tbody>
        {models.map((m) => (
          <Tr key={`${m.kind}/${m.name}`}>
            <Td dataLabel="Document">
              <Link to={`/documents/${m.kind}/${m.name}`}>
                {m.kind}/{m.name}
              </Link>
            </Td>
            <Td dataLabel="Generation">{m.generation}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}
