import { Card, CardBody, CardTitle, Content } from '@patternfly/react-core'
import { api, list, type Schemas } from '../api/client'
import { Command } from '../ui/command'
import { Answer } from '../ui/page'

// Comparison says how the plan differs from the one before it.
export function Comparison({ plan, before }: { plan: string; before: string }) {
  const asked = api.useQuery('get', '/plans/{id}/compare', {
    params: { path: { id: plan }, query: { older: before } },
  })
  return (
    <Card component="section" aria-label="What differs">
      <CardTitle component="h2">What differs from the plan before</CardTitle>
      <CardBody className="stack">
        <Answer of={asked}>{(c) => <Differences of={c} />}</Answer>
        <Command>{`directorctl plans compare ${plan} ${before}`}</Command>
      </CardBody>
    </Card>
  )
}

function Differences({ of }: { of: Schemas['PlanComparison'] }) {
  if (of.same) return <Content component="p">Nothing: a start of either plan does the same.</Content>
  const effect = (e: Schemas['Effect']) => `${e.verb} ${e.object} ${e.name}${e.detail ? ` (${e.detail})` : ''}`
  const step = (s: Schemas['PlanStep']) => `step: ${s.title}`
  const agree = (text: string) => `to agree to: ${text}`
  return (
    <>
      <ul className="pf-v6-c-list">
        {list(of.reasons).map((r) => (
          <li key={r}>{r}</li>
        ))}
      </ul>
      <Lines
        title="New"
        sign="+"
        of={[...of.approvals_new.map(agree), ...of.effects_new.map(effect), ...of.steps_new.map(step)]}
      />
      <Lines
        title="No longer"
        sign="-"
        of={[...of.approvals_gone.map(agree), ...of.effects_gone.map(effect), ...of.steps_gone.map(step)]}
      />
    </>
  )
}

const most = 200

function Lines({ title, sign, of }: { title: string; sign: string; of: string[] }) {
  if (of.length === 0) return null
  return (
    <div>
      <h3>{title}</h3>
      <ul className="mono">
        {of.slice(0, most).map((text, i) => (
          <li key={i} className="break">
            {sign} {text}
          </li>
        ))}
      </ul>
      {of.length > most && <p className="hint">and {of.length - most} more</p>}
    </div>
  )
}
