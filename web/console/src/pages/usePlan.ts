import { useNavigate } from 'react-router'
import { client, type Schemas } from '../api/client'
import { must } from '../api/must'

// usePlan freezes a plan and opens it.
export function usePlan(cluster: string): (request: Schemas['PlanRequest']) => Promise<void> {
  const navigate = useNavigate()
  return async (request) => {
    const plan = await must(
      client.POST('/clusters/{name}/plans', { params: { path: { name: cluster } }, body: request }),
    )
    void navigate(`/plans/${plan.id}`)
  }
}
