import { Content } from '@patternfly/react-core'
import { useState } from 'react'
import { api } from '../api/client'
import { counted, lossFirst, type EffectGroup } from '../plan/plan'

const lossy = new Set(['delete', 'fence', 'evict'])

interface EffectsProps {
  of: EffectGroup[]
  plan?: string // has the names that are not there
}

// Effects shows what a plan does to the world, what is lost first.
export function Effects({ of, plan }: EffectsProps) {
  if (of.length === 0) return <Content component="p">It changes nothing outside of the director.</Content>
  return (
    <dl className="facts" aria-label="Effects">
      {lossFirst(of).map((g) => (
        <div key={`${g.verb} ${g.object}`} style={{ display: 'contents' }}>
          <dt className={lossy.has(g.verb) ? 'lossy' : undefined}>
            <strong>{g.verb}</strong> {counted(g.total, g.object)}
          </dt>
          <dd>
            <Names of={g} plan={plan} />
          </dd>
        </div>
      ))}
    </dl>
  )
}

const few = 12
const most = 1000

// Names shows some of many.
function Names({ of: group, plan }: { of: EffectGroup; plan: string | undefined }) {
  const [whole, setWhole] = useState(false)
  const { verb, object } = group
  const asked = api.useQuery(
    'get',
    '/plans/{id}/effects',
    { params: { path: { id: plan ?? '' }, query: { verb, object, limit: most } } },
    { enabled: whole && plan !== undefined && group.names.length < group.total, staleTime: Infinity },
  )
  const names = asked.data?.items[0]?.names ?? group.names
  const shown = names.slice(0, whole ? most : few)
  const rest = group.total - shown.length
  return (
    <>
      {shown.join(', ')}
      {rest > 0 &&
        (whole && !asked.isLoading ? (
          ` and ${rest} more`
        ) : (
          <>
            {' '}
            <button type="button" className="pf-v6-c-button pf-m-link pf-m-inline" onClick={() => setWhole(true)}>
              and {rest} more
            </button>
          </>
        ))}
    </>
  )
}
