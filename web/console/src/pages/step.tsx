import { Card, CardBody, CardTitle, FormSelect, FormSelectOption } from '@patternfly/react-core'
import { useParams } from 'react-router'
import { list } from '../api/client'
import { acts, useMe } from '../app/me'
import { Log } from '../logs/view'
import { Command, quoted } from '../ui/command'
import { Answer, Facts, Nothing, Page } from '../ui/page'
import { Status } from '../ui/status'
import { duration, Time } from '../ui/time'
import { useFilters } from '../ui/url'
import { usePlanHead, useSteps } from '../plan/asked'
import type { Plan, Step } from '../plan/plan'
import { StepActions } from './planActions'
import { Alert } from '../ui/alert'

// StepPage explains one step, and opens its log at the line that failed.
export default function StepPage() {
  const { id = '', step: name = '' } = useParams()
  const asked = usePlanHead(id)
  const steps = useSteps(id, { step: [name], limit: 1 })
  return (
    <Answer of={asked}>
      {(plan) => (
        <Answer of={steps}>
          {({ items: [step] }) => {
            const above = [
              { to: '/plans', text: 'Plans' },
              { to: `/plans/${plan.id}`, text: plan.summary || plan.operation },
              { to: `/plans/${plan.id}/steps`, text: 'Steps' },
            ]
            if (!step)
              return (
                <Page title="There is no such step" above={above}>
                  <Nothing title={`The plan has no step ${name}.`} />
                </Page>
              )
            return <OneStep plan={plan} step={step} above={above} />
          }}
        </Answer>
      )}
    </Answer>
  )
}

function OneStep({ plan, step, above }: { plan: Plan; step: Step; above: { to: string; text: string }[] }) {
  const me = useMe()
  const filters = useFilters()
  const attempt = Math.min(Number(filters.get('attempt')) || step.attempt, step.attempt)
  const older = attempt === step.attempt ? '' : ` --attempt ${attempt}`
  const command = `directorctl logs ${plan.id} --step ${quoted(step.id)}${older}`
  const grows = (step.status === 'running' || step.status === 'undoing') && attempt === step.attempt
  return (
    <Page
      title={step.title}
      above={above}
      beside={<Status of={step.status} />}
      actions={acts(me) && <StepActions plan={plan} step={step} />}
    >
      <div className="stack">
        {step.message && (
          <Alert
            isInline
            variant={step.status === 'failed' || step.status === 'stuck' ? 'danger' : 'info'}
            title={step.message}
          >
            {step.hint}
          </Alert>
        )}
        <Card component="section">
          <CardTitle component="h2">The step</CardTitle>
          <CardBody>
            <Facts
              of={[
                ['Node', step.node],
                ['The cluster meanwhile', step.safety],
                ['Starts again', step.not_before && <Time at={step.not_before} />],
                ['Started', step.started_at && <Time at={step.started_at} />],
                ['Ended', step.finished_at && <Time at={step.finished_at} />],
                ['Takes about', duration(step.estimate_seconds)],
                ['Attempts', step.attempt > 0 && `${step.attempt}; an error is tried ${step.attempts} times`],
                [
                  'Effects',
                  list(step.effects)
                    .map((e) => `${e.verb} ${e.object} ${e.name}${e.detail ? ` (${e.detail})` : ''}`)
                    .join('; '),
                ],
                ['Needs', list(step.needs).join(', ')],
                ['Kind', step.kind],
                [
                  'Id',
                  <span key="i" className="mono break">
                    {step.id}
                  </span>,
                ],
              ]}
            />
          </CardBody>
        </Card>
        <Card component="section">
          <CardTitle component="h2">Log</CardTitle>
          <CardBody className="stack">
            {step.attempt > 1 && (
              <FormSelect
                aria-label="Attempt"
                value={String(attempt)}
                onChange={(_, v) => filters.set({ attempt: v === String(step.attempt) ? null : v })}
              >
                {Array.from({ length: step.attempt }, (_, i) => step.attempt - i).map((n) => (
                  <FormSelectOption
                    key={n}
                    value={String(n)}
                    label={n === step.attempt ? `Attempt ${n}, the latest` : `Attempt ${n}`}
                  />
                ))}
              </FormSelect>
            )}
            {step.attempt === 0 ? (
              <Nothing title="The step has not run yet." />
            ) : (
              <Log key={attempt} plan={plan.id} step={step.id} attempt={attempt} grows={grows} />
            )}
            <Command>{command}</Command>
          </CardBody>
        </Card>
      </div>
    </Page>
  )
}
