import { Card, CardBody, CardTitle } from '@patternfly/react-core'
import { useQuery } from '@tanstack/react-query'
import { api, list, type Schemas } from '../api/client'
import { Command } from '../ui/command'
import { Answer, Facts } from '../ui/page'
import { Status } from '../ui/status'

const approvals: Record<Schemas['Settings']['approval'], string> = {
  none: 'A plan that destroys something needs no agreement.',
  any: 'A person has to agree to what a plan destroys. It may be who asked for the plan.',
  other: 'Another person than who asked for a plan has to agree to what it destroys.',
}

// lasting is a time in the largest unit that has no rest.
function lasting(seconds: number): string {
  const [unit, length] =
    seconds % 86_400 === 0 ? ['days', 86_400] : seconds % 3_600 === 0 ? ['hours', 3_600] : ['minutes', 60]
  return `${Math.round(seconds / Number(length))} ${unit}`
}

// health asks the probe that programs ask. What it says of a director that is not ready is an answer too.
async function health(): Promise<Schemas['Check'][]> {
  const answer = await fetch('/readyz')
  const said = (await answer.json()) as {
    checks?: Schemas['Check'][]
    errors?: { field: string; message: string }[]
    detail?: string
  }
  if (answer.ok) return list(said.checks)
  const wrong = list(said.errors).map((e) => ({ name: e.field, ok: false, reason: e.message }))
  return wrong.length > 0 ? wrong : [{ name: 'director', ok: false, reason: said.detail ?? 'It is not ready.' }]
}

// DirectorCard is what the director is, and what its configuration says that people go by.
export function DirectorCard() {
  const version = api.useQuery('get', '/version', {})
  const settings = api.useQuery('get', '/settings', {})
  const checks = useQuery({ queryKey: ['get', '/readyz'], queryFn: health, refetchInterval: 30_000 })
  return (
    <Card component="section">
      <CardTitle component="h2">Director</CardTitle>
      <CardBody className="stack">
        <Answer of={settings}>
          {(s) => (
            <Facts
              of={[
                [
                  'Version',
                  version.data && `${version.data.version}${version.data.commit ? ` (${version.data.commit})` : ''}`,
                ],
                ['Approval', approvals[s.approval]],
                ['A plan can be started for', lasting(s.plan_life_seconds)],
                [
                  'Notice',
                  s.notice && (
                    <span key="notice" className="pre">
                      {s.notice}
                    </span>
                  ),
                ],
                ['Shells on nodes', s.node_shells > 0 ? `on; ${s.node_shells} may be open at once` : 'off'],
                [
                  'Health',
                  checks.data && (
                    <ul key="health" aria-label="Health">
                      {checks.data.map((c) => (
                        <li key={c.name}>
                          <Status of={c.ok ? 'ok' : 'failed'} /> {c.name}
                          {c.reason && `: ${c.reason}`}
                        </li>
                      ))}
                    </ul>
                  ),
                ],
              ]}
            />
          )}
        </Answer>
        <Command>directorctl settings</Command>
      </CardBody>
    </Card>
  )
}
