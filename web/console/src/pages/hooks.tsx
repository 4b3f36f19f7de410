import { FormGroup, TextInput } from '@patternfly/react-core'
import { ActionsColumn, Table, Tbody, Thead } from '@patternfly/react-table'
import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'react-router'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { acts, edits, useMe } from '../app/me'
import { Ask } from '../ui/ask'
import { Td, Th, Tr } from '../ui/cells'
import { atOnce, Command, flag } from '../ui/command'
import { ChoiceFilter, FilterBar, Pages } from '../ui/filters'
import { LinkButton } from '../ui/linkButton'
import { Answer, Nothing, Page } from '../ui/page'
import { Status } from '../ui/status'
import { Time } from '../ui/time'
import { useFilters } from '../ui/url'

type Delivery = Schemas['HookDelivery']

const states = ['due', 'accepted', 'delivered', 'answered', 'expired', 'failed', 'withdrawn'] as const
const often = 5_000

// Hooks are the events that endpoints were told and asked, the newest first.
export default function Hooks() {
  const me = useMe()
  const filters = useFilters()
  const state = states.find((s) => s === filters.get('state'))
  const asked = api.useQuery(
    'get',
    '/hook-deliveries',
    {
      params: {
        query: { limit: 100, continue: filters.get('continue') || undefined, ...(state ? { state: [state] } : {}) },
      },
    },
    { refetchInterval: often },
  )
  return (
    <Page
      title="Hooks"
      actions={
        <>
          <LinkButton to="/documents/Hook">Endpoints</LinkButton>
          {edits(me) && <LinkButton to="/apply?template=Hook">New hook</LinkButton>}
        </>
      }
    >
      <FilterBar>
        <ChoiceFilter filters={filters} name="state" label="State" options={states.map((s) => [s, s])} />
      </FilterBar>
      <Answer of={asked}>
        {(d) =>
          list(d.items).length === 0 ? (
            <Nothing title="No hook was called.">Plans call the hooks that they were made with.</Nothing>
          ) : (
            <>
              <Deliveries label="Deliveries" of={list(d.items)} />
              <Pages filters={filters} next={d.continue} />
            </>
          )
        }
      </Answer>
    </Page>
  )
}

// useQuestions asks for what plans wait for to be answered.
export function useQuestions(enabled: boolean) {
  return api.useQuery(
    'get',
    '/hook-deliveries',
    { params: { query: { waiting: true, limit: 50 } } },
    { refetchInterval: often, enabled },
  )
}

// Questions shows them. There is nothing to see without one.
export function Questions({ of }: { of: ReturnType<typeof useQuestions> }) {
  return (
    <Answer of={of}>
      {(d) => (list(d.items).length === 0 ? null : <Deliveries label="Questions of plans" of={list(d.items)} />)}
    </Answer>
  )
}

interface Asked {
  decision: 'continue' | 'refuse'
  delivery: Delivery
}

function Deliveries({ label, of }: { label: string; of: Delivery[] }) {
  const me = useMe()
  const queries = useQueryClient()
  const [asked, setAsked] = useState<Asked>()
  const again = () => queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/hook-deliveries' })
  const replay = (id: string) =>
    void must(client.POST('/hook-deliveries/{delivery}/replay', { params: { path: { delivery: id } } })).finally(again)
  return (
    <>
      <Table role="table" aria-label={label} variant="compact">
        <Thead>
          <Tr>
            <Th>Hook</Th>
            <Th>Phase</Th>
            <Th>Plan</Th>
            <Th>State</Th>
            <Th>Created</Th>
            <Th>Until</Th>
            {acts(me) && <Th screenReaderText="Actions" />}
          </Tr>
        </Thead>
        <Tbody>
          {of.map((d) => (
            <Tr key={d.id}>
              <Td dataLabel="Hook" className="break">
                {d.hook}
              </Td>
              <Td dataLabel="Phase">
                {d.phase}
                <div className="hint break">{d.node ?? d.cluster}</div>
              </Td>
              <Td dataLabel="Plan">{d.plan ? <Link to={`/plans/${d.plan}`}>{d.plan}</Link> : 'a test'}</Td>
              <Td dataLabel="State">
                <Status of={d.state} word={d.decision ?? d.state} />
                <div className="hint break">{d.problem ?? d.reason}</div>
              </Td>
              <Td dataLabel="Created">
                <Time at={d.created_at} />
              </Td>
              <Td dataLabel="Until">{d.waits && <Time at={d.deadline} />}</Td>
              {acts(me) && (
                <Td isActionCell>
                  <ActionsColumn
                    items={
                      d.waits
                        ? [
                            { title: 'Continue', onClick: () => setAsked({ decision: 'continue', delivery: d }) },
                            { title: 'Refuse', onClick: () => setAsked({ decision: 'refuse', delivery: d }) },
                            atOnce('Ask the endpoint again', `directorctl hooks replay ${d.id}`, () => replay(d.id)),
                          ]
                        : [
                            {
                              ...atOnce('Send again', `directorctl hooks replay ${d.id}`, () => replay(d.id)),
                              isDisabled: !d.plan || !!d.deadline,
                            },
                          ]
                    }
                    popperProps={{ position: 'right' }}
                  />
                </Td>
              )}
            </Tr>
          ))}
        </Tbody>
      </Table>
      {asked && <Decide of={asked} close={() => setAsked(undefined)} done={again} />}
    </>
  )
}

function Decide({ of, close, done }: { of: Asked; close: () => void; done: () => Promise<unknown> }) {
  const [reason, setReason] = useState('')
  const { decision, delivery } = of
  const act = () =>
    must(
      client.POST('/hook-deliveries/{delivery}/answer', {
        params: { path: { delivery: delivery.id } },
        body: { decision, reason },
      }),
    ).then(done)
  return (
    <Ask
      title={decision === 'continue' ? 'Let the plan continue?' : 'Refuse?'}
      verb={decision === 'continue' ? 'Continue' : 'Refuse'}
      danger={decision === 'refuse'}
      act={act}
      close={close}
    >
      <p>
        You answer instead of the hook {delivery.hook}, for {delivery.phase} of {delivery.node ?? delivery.cluster}. The
        first answer counts.
      </p>
      <FormGroup label="Reason" fieldId="hook-reason">
        <TextInput id="hook-reason" value={reason} onChange={(_, text) => setReason(text)} maxLength={1000} />
      </FormGroup>
      <Command>{`directorctl hooks answer ${delivery.id} ${decision}${flag('reason', reason)}`}</Command>
    </Ask>
  )
}
