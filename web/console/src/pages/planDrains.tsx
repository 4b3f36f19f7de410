import { Card, CardBody, CardTitle, Content } from '@patternfly/react-core'
import { api } from '../api/client'
import { rehearsed } from '../nodes/nodes'
import { usePlanEffects } from '../plan/asked'
import type { Plan } from '../plan/plan'
import { Alert } from '../ui/alert'
import { Answer } from '../ui/page'
import { Time } from '../ui/time'
import { Rehearsal } from './rehearsals'

// PlanDrains asks the cluster what the drains of a plan would do, before a person agrees to it.
export function PlanDrains({ plan }: { plan: Plan }) {
  const drains = usePlanEffects(plan.id).data?.items.some((g) => g.verb === 'evict') ?? false
  const asked = api.useQuery(
    'get',
    '/plans/{id}/drains',
    { params: { path: { id: plan.id } } },
    { enabled: drains, staleTime: 30_000, retry: 0, refetchInterval: false, refetchOnWindowFocus: false },
  )
  if (!drains) return null
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
