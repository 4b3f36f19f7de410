import { Card, CardBody, CardTitle, Content } from '@patternfly/react-core'
import { api, list } from '../api/client'
import { rehearsed } from '../nodes/nodes'
import type { Plan } from '../plan/plan'
import { Alert } from '../ui/alert'
import { Answer } from '../ui/page'
import { Time } from '../ui/time'
import { Rehearsal } from './rehearsals'

const drains = (plan: Plan) => list(plan.steps).some((s) => list(s.effects).some((e) => e.verb === 'evict'))

// PlanDrains asks the cluster what the drains of a plan would do, before a person agrees to it.
export function PlanDrains({ plan }: { plan: Plan }) {
  const asked = api.useQuery(
    'get',
    '/plans/{id}/drains',
    { params: { path: { id: plan.id } } },
    { enabled: drains(plan), staleTime: 30_000, retry: 0, refetchInterval: false, refetchOnWindowFocus: false },
  )
  if (!drains(plan)) return null
  return (
    <Card component="section">
      <CardTitle component="h2">Pods that its drains move</CardTitle>
      <CardBody className="stack">
        <Answer of={asked}>
          {(of) => {
            const seen = of.items.filter((d) => !d.unseen)
            return (
              <div className="stack">
                {of.items
                  .filter((d) => d.unseen)
                  .map((d) => (
                    <Alert key={d.step} isInline variant="warning" title={`${d.node}: not known, ${d.unseen}`} />
                  ))}
                {seen.length > 0 && <Rehearsal of={seen.map((d) => rehearsed(d.node, d.pods))} more={of.rest} />}
                <Content component="small">
                  As of <Time at={of.at} />. The plan freezes which nodes are drained, and how far; pods move until
                  then.
                </Content>
              </div>
            )
          }}
        </Answer>
      </CardBody>
    </Card>
  )
}
