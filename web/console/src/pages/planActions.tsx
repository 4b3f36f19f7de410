import { Button, Checkbox, Content, FormGroup, TextInput } from '@patternfly/react-core'
import { useQueryClient } from '@tanstack/react-query'
import { useState, type FormEvent } from 'react'
import { useNavigate } from 'react-router'
import { api, client, list } from '../api/client'
import { must } from '../api/must'
import { planQuery } from '../plan/asked'
import { verbsOf, type Plan, type Step, type Verb } from '../plan/plan'
import { useMe } from '../app/me'
import { useAct } from '../ui/act'
import { Alert } from '../ui/alert'
import { Ask, AskButton } from '../ui/ask'
import { Command, flag, quoted } from '../ui/command'
import { Answer } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { Actions } from '../ui/actions'

const affected = ['/plans', '/plans/{id}/steps', '/plans/{id}/matrix', '/clusters', '/waits', '/summary']

// usePut shows the plan that an action answered with at once.
function usePut(): (plan: Plan) => void {
  const queries = useQueryClient()
  return (plan) => {
    queries.setQueryData(planQuery(plan.id).queryKey, plan) // the answer of a verb has no steps either
    void queries.invalidateQueries({ predicate: (q) => affected.includes(String(q.queryKey[1])) })
  }
}

const path = (p: Plan) => ({ params: { path: { id: p.id } } })

function send(plan: Plan, verb: Exclude<Verb, 'cancel' | 'pause'>): Promise<Plan> {
  const hash = { body: { hash: plan.hash } }
  switch (verb) {
    case 'approve':
      return must(client.POST('/plans/{id}/approve', { ...path(plan), ...hash }))
    case 'start':
      return must(client.POST('/plans/{id}/start', { ...path(plan), ...hash }))
    case 'resume':
    case 'retry':
      return must(client.POST('/plans/{id}/retry', { ...path(plan), body: {} }))
    case 'undo':
      return must(client.POST('/plans/{id}/undo', path(plan)))
    case 'discard':
      return must(client.POST('/plans/{id}/discard', path(plan)))
  }
}

const texts: Record<'resume' | 'retry' | 'undo' | 'discard', { verb: string; title: string; text: string }> = {
  resume: { verb: 'Resume', title: 'Resume this plan?', text: 'It goes on with the steps that have not run.' },
  retry: {
    verb: 'Retry',
    title: 'Retry this plan?',
    text: 'What failed or waits for a person runs again. Steps that are done are not repeated.',
  },
  undo: {
    verb: 'Undo',
    title: 'Undo this plan?',
    text: 'What it did is undone, the last first, as far as its steps can be undone.',
  },
  discard: {
    verb: 'Discard',
    title: 'Discard this plan?',
    text: 'It is given up as it is. Its cluster is free for another plan.',
  },
}

// PlanActions are the verbs that the plan allows now, but for agreeing and starting, which Agree has.
export function PlanActions({ plan }: { plan: Plan }) {
  const put = usePut()
  const allowed = verbsOf(plan)
  return (
    <Actions>
      {allowed.includes('pause') && <PauseButton plan={plan} put={put} />}
      {(['resume', 'retry', 'undo', 'discard'] as const)
        .filter((v) => allowed.includes(v))
        .map((v) => (
          <AskButton
            key={v}
            variant={v === 'resume' || v === 'retry' ? 'primary' : 'secondary'}
            ask={(close) => (
              <Ask
                title={texts[v].title}
                verb={texts[v].verb}
                danger={v === 'undo' || v === 'discard'}
                close={close}
                act={async () => put(await send(plan, v))}
              >
                <Content component="p">{texts[v].text}</Content>
                <Command>{`directorctl ${v} ${plan.id}`}</Command>
              </Ask>
            )}
          >
            {texts[v].verb}
          </AskButton>
        ))}
      {allowed.includes('cancel') && <CancelButton plan={plan} put={put} />}
    </Actions>
  )
}

function PauseButton({ plan, put }: { plan: Plan; put: (p: Plan) => void }) {
  const [reason, setReason] = useState('')
  return (
    <AskButton
      variant="secondary"
      ask={(close) => (
        <Ask
          title="Pause this plan?"
          verb="Pause"
          close={close}
          act={async () => put(await must(client.POST('/plans/{id}/pause', { ...path(plan), body: { reason } })))}
        >
          <Content component="p">
            The steps that run come to their end, and no other starts. The plan keeps its cluster.
          </Content>
          <FormGroup label="Why, for those who wonder" fieldId="pause-reason">
            <TextInput id="pause-reason" value={reason} onChange={(_, v) => setReason(v)} />
          </FormGroup>
          <Command>{`directorctl pause ${plan.id}${flag('reason', reason)}`}</Command>
        </Ask>
      )}
    >
      Pause
    </AskButton>
  )
}

function CancelButton({ plan, put }: { plan: Plan; put: (p: Plan) => void }) {
  const [now, setNow] = useState(false)
  return (
    <AskButton
      variant="secondary"
      ask={(close) => (
        <Ask
          title="Cancel this plan?"
          verb="Cancel the plan"
          danger
          close={close}
          act={async () => put(await must(client.POST('/plans/{id}/cancel', { ...path(plan), body: { now } })))}
        >
          <Content component="p">It stops between steps. It can be retried, undone or discarded afterwards.</Content>
          <Checkbox
            id="cancel-now"
            label="End the steps that run now as well"
            isChecked={now}
            onChange={(_, v) => setNow(v)}
            description="A playbook that is ended is run again from its beginning by a retry."
          />
          <Command>{`directorctl cancel ${plan.id}${now ? ' --now' : ''}`}</Command>
        </Ask>
      )}
    >
      Cancel
    </AskButton>
  )
}

// Agree is where a person who has read the plan starts it. Each thing that is lost is agreed to in its words.
export function Agree({ plan }: { plan: Plan }) {
  const me = useMe()
  const settings = api.useQuery('get', '/settings', {})
  return (
    <Answer of={settings}>
      {({ approval }) => {
        const first = plan.status === 'planned' && list(plan.approvals).length > 0 && approval !== 'none'
        if (first && approval === 'other' && plan.created_by === me.user) return <AnotherAgrees plan={plan} />
        return <AgreeForm plan={plan} first={first} />
      }}
    </Answer>
  )
}

// AnotherAgrees tells who has made the plan why there is no Start.
function AnotherAgrees({ plan }: { plan: Plan }) {
  return (
    <div className="stack" role="group" aria-label="Agree to the plan">
      <Alert isInline variant="info" title="Another person has to agree to this plan before it can be started.">
        You have made it, and it destroys something: this director wants two people for that.
      </Alert>
      <ul>
        {list(plan.approvals).map((a) => (
          <li key={a}>{a}</li>
        ))}
      </ul>
      <Content component="p">Send them the address of this page, or this command:</Content>
      <Command>{`directorctl approve ${plan.id}`}</Command>
    </div>
  )
}

// AgreeForm agrees and starts. Where the director wants an agreement first, Start is both.
function AgreeForm({ plan, first }: { plan: Plan; first: boolean }) {
  const put = usePut()
  const needed = list(plan.approvals)
  const [agreed, setAgreed] = useState<string[]>([])
  const [busy, setBusy] = useState<Verb>()
  const [failed, setFailed] = useState<unknown>()
  const allowed = verbsOf(plan)
  const all = plan.status === 'approved' || needed.every((a) => agreed.includes(a))
  const act = async (verb: 'approve' | 'start') => {
    setBusy(verb)
    setFailed(undefined)
    try {
      if (first && verb === 'start') put(await send(plan, 'approve'))
      put(await send(plan, verb))
      document.getElementById('main')?.scrollTo(0, 0) // where it is told what runs
    } catch (err) {
      setFailed(err)
    } finally {
      setBusy(undefined)
    }
  }
  const submit = (e: FormEvent) => {
    e.preventDefault()
    void act('start')
  }
  return (
    <form className="stack" onSubmit={submit} aria-label="Agree to the plan">
      {plan.status === 'planned' &&
        needed.map((a, i) => (
          <Checkbox
            key={a}
            id={`agree-${i}`}
            label={`I agree: ${a}.`.replace(/\.\.$/, '.')}
            isChecked={agreed.includes(a)}
            onChange={(_, on) => setAgreed(on ? [...agreed, a] : agreed.filter((x) => x !== a))}
          />
        ))}
      {plan.approved_by && <Content component="p">Approved by {plan.approved_by}.</Content>}
      {failed !== undefined && <ProblemAlert of={failed} />}
      {isConflict(failed) && <MakeAgain plan={plan} />}
      <Actions>
        <Button type="submit" isDisabled={!all || busy !== undefined} isLoading={busy === 'start'}>
          {first ? 'Agree and start' : 'Start'}
        </Button>
        {allowed.includes('approve') && (
          <Button
            variant="secondary"
            isDisabled={!all || busy !== undefined}
            isLoading={busy === 'approve'}
            onClick={() => void act('approve')}
          >
            Approve only
          </Button>
        )}
      </Actions>
      {first && <Command>{`directorctl approve ${plan.id}`}</Command>}
      <Command>{`directorctl start ${plan.id}`}</Command>
    </form>
  )
}

function isConflict(problem: unknown): boolean {
  return typeof problem === 'object' && problem !== null && 'kind' in problem && problem.kind === 'conflict'
}

// MakeAgain makes a plan again that the world has left behind, and opens it with what differs.
function MakeAgain({ plan }: { plan: Plan }) {
  const navigate = useNavigate()
  const { busy, failed, act } = useAct()
  const again = () =>
    act(async () => {
      const made = await must(client.POST('/plans/{id}/again', path(plan)))
      await navigate(`/plans/${made.id}?before=${plan.id}`)
    })
  return (
    <>
      {failed !== undefined && <ProblemAlert of={failed} />}
      <Button variant="secondary" isLoading={busy} isDisabled={busy} onClick={() => void again()}>
        Make the plan again, and compare
      </Button>
      <Command>{`directorctl plans again ${plan.id}`}</Command>
    </>
  )
}

// StepActions retry or skip one step.
export function StepActions({ plan, step }: { plan: Plan; step: Step }) {
  const put = usePut()
  const [reason, setReason] = useState('')
  const stopped = ['parked', 'failed', 'cancelled', 'paused', 'running'].includes(plan.status)
  if (!stopped || !['failed', 'parked', 'waiting', 'pending', 'stuck'].includes(step.status)) return null
  const which = `--step ${quoted(step.id)}`
  const retries = ['failed', 'parked', 'stuck'].includes(step.status)
  return (
    <Actions>
      {retries && (
        <AskButton
          ask={(close) => (
            <Ask
              title="Retry this step?"
              verb="Retry"
              close={close}
              act={async () =>
                put(await must(client.POST('/plans/{id}/retry', { ...path(plan), body: { step: step.id } })))
              }
            >
              <Content component="p">It runs again, and the plan goes on after it.</Content>
              <Command>{`directorctl retry ${plan.id} ${which}`}</Command>
            </Ask>
          )}
        >
          Retry
        </AskButton>
      )}
      <AskButton
        variant="secondary"
        ask={(close) => (
          <Ask
            title="Skip this step?"
            verb="Skip"
            danger
            ready={reason.trim() !== ''}
            close={close}
            act={async () =>
              put(await must(client.POST('/plans/{id}/skip', { ...path(plan), body: { step: step.id, reason } })))
            }
          >
            <Content component="p">The plan goes on without it. The reason is kept in its journal.</Content>
            <FormGroup label="Why it is not needed" fieldId="skip-reason" isRequired>
              <TextInput id="skip-reason" isRequired value={reason} onChange={(_, v) => setReason(v)} />
            </FormGroup>
            <Command>{`directorctl skip ${plan.id} ${which} --reason ${quoted(reason || 'WHY')}`}</Command>
          </Ask>
        )}
      >
        Skip
      </AskButton>
    </Actions>
  )
}
