import { Table, Tbody, Thead } from '@patternfly/react-table'
import type { Schemas } from '../api/client'
import { share } from '../plan/plan'
import { Td, Th, Tr } from '../ui/cells'
import { RowLink } from '../ui/rowLink'
import { Status } from '../ui/status'
import { Time } from '../ui/time'

// Where what a plan is for is shown: a cluster, or the document of a director.
export function subjectPath(plan: { operation: string; cluster: string }) {
  return plan.operation.startsWith('director.') ? `/documents/Director/${plan.cluster}` : `/clusters/${plan.cluster}`
}

export function PlanTable({ label, plans }: { label: string; plans: Schemas['PlanSummary'][] }) {
  return (
    <Table role="table" aria-label={label} variant="compact">
      <Thead>
        <Tr>
          <Th width={30}>Plan</Th>
          <Th modifier="fitContent">Cluster</Th>
          <Th width={30}>Status</Th>
          <Th modifier="fitContent">Steps</Th>
          <Th modifier="fitContent">By</Th>
          <Th modifier="fitContent">Made</Th>
        </Tr>
      </Thead>
      <Tbody>
        {plans.map((p) => (
          <Tr key={p.id}>
            <Td dataLabel="Plan">
              <RowLink to={`/plans/${p.id}`} className="word">
                {p.summary || p.operation}
              </RowLink>
            </Td>
            <Td dataLabel="Cluster">
              <RowLink to={subjectPath(p)} className="word">
                {p.cluster}
              </RowLink>
            </Td>
            <Td dataLabel="Status">
              <Status of={p.status} />
              {p.message && <div className="hint break">{p.message}</div>}
            </Td>
            <Td dataLabel="Steps">
              {p.steps_done} of {p.steps_total}
              {p.steps_total > 0 && ` (${share(p)} %)`}
            </Td>
            <Td dataLabel="By">{p.created_by}</Td>
            <Td dataLabel="Made">
              <Time at={p.created_at} />
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}
