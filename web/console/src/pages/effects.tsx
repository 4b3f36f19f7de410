import { Content } from '@patternfly/react-core'
import { useState } from 'react'
import type { Schemas } from '../api/client'
import { counted, effectsOf } from '../plan/plan'

const lossy = new Set(['delete', 'fence', 'evict'])

// Effects shows what a plan does to the world, what is lost first.
export function Effects({ of }: { of: Schemas['Effect'][] }) {
  const groups = effectsOf(of)
  if (groups.length === 0) return <Content component="p">It changes nothing outside of the director.</Content>
  return (
    <dl className="facts" aria-label="Effects">
      {groups.map((g) => (
        <div key={`${g.verb} ${g.object}`} style={{ display: 'contents' }}>
          <dt className={lossy.has(g.verb) ? 'lossy' : undefined}>
            <strong>{g.verb}</strong> {counted(g.names.length, g.object)}
          </dt>
          <dd>
            <Names of={g.names} />
          </dd>
        </div>
      ))}
    </dl>
  )
}

// Names shows some of many.
function Names({ of: all }: { of: string[] }) {
  const [whole, setWhole] = useState(false)
  const few = 12
  if (all.length <= few || whole) return <>{all.slice(0, 1000).join(', ')}</>
  return (
    <>
      {all.slice(0, few).join(', ')}{' '}
      <button type="button" className="pf-v6-c-button pf-m-link pf-m-inline" onClick={() => setWhole(true)}>
        and {all.length - few} more
      </button>
    </>
  )
}
