import { Content, FormGroup, TextInput, Title } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link, useParams } from 'react-router'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { acts, useMe } from '../app/me'
import { Actions } from '../ui/actions'
import { Ask, AskButton } from '../ui/ask'
import { Td, Th, Tr } from '../ui/cells'
import { Command, flag, quoted } from '../ui/command'
import { More } from '../ui/more'
import { Answer, Facts, Page } from '../ui/page'
import { Status } from '../ui/status'
import { Time } from '../ui/time'
import { countsText, messageOf, targetText, verbsOf, type Campaign } from './campaignText'

const path = (id: string) => ({ params: { path: { id } } })

export default function OneCampaign() {
  const { id = '' } = useParams()
  const asked = api.useQuery('get', '/campaigns/{id}', path(id), { refetchInterval: 5_000 })
  const above = [{ to: '/campaigns', text: 'Campaigns' }]
  return (
    <Answer of={asked}>
      {(c) => (
        <Page title={c.name} above={above} beside={<Status of={c.status} word={c.status} />} actions={<Verbs of={c} />}>
          <Facts
            of={[
              ['Target', targetText(c.target)],
              ['Clusters', countsText(c.counts)],
              ['Failures', `${c.failed}; more than ${c.allowed} stop the campaign`],
              ['Pause between waves', c.pause],
              ['Starts only', c.window && `${c.window.cron} ${c.window.time_zone ?? ''}`],
              ['Until', c.until && <Time at={c.until} />],
              ['Reason', c.reason],
              ['Paused by', c.paused_by],
              ['Ended by', c.ended_by],
              ['Made by', c.created_by],
              ['Made', <Time at={c.created_at} />],
            ]}
          />
          <Waves of={c} />
          <Title headingLevel="h2" className="after">
            Clusters
          </Title>
          <More of={list(c.clusters)} size={100}>
            {(some) => <Clusters of={c} some={some} />}
          </More>
        </Page>
      )}
    </Answer>
  )
}

function Waves({ of }: { of: Campaign }) {
  if (list(of.waves).length === 0) return null
  return (
    <Table role="table" aria-label="Waves" variant="compact">
      <Thead>
        <Tr>
          <Th>Wave</Th>
          <Th>Clusters</Th>
          <Th>Hash</Th>
        </Tr>
      </Thead>
      <Tbody>
        {list(of.waves).map((w) => (
          <Tr key={w.number}>
            <Td dataLabel="Wave">
              {w.number}
              {w.current && ' (current)'}
            </Td>
            <Td dataLabel="Clusters">{countsText(w.counts)}</Td>
            <Td dataLabel="Hash">{w.hash?.slice(0, 12)}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}

function Clusters({ of, some }: { of: Campaign; some: Schemas['CampaignCluster'][] }) {
  const may = acts(useMe()) && of.ended_at === undefined
  return (
    <Table role="table" aria-label="Clusters" variant="compact">
      <Thead>
        <Tr>
          <Th>Cluster</Th>
          <Th>Wave</Th>
          <Th>State</Th>
          <Th width={40}>Message</Th>
          {may && <Th screenReaderText="Actions" />}
        </Tr>
      </Thead>
      <Tbody>
        {some.map((m) => (
          <Tr key={m.name}>
            <Td dataLabel="Cluster">
              <Link to={`/clusters/${m.name}`} className="word">
                {m.name}
              </Link>
            </Td>
            <Td dataLabel="Wave">{m.wave > 0 ? m.wave : '–'}</Td>
            <Td dataLabel="State">
              <Status of={m.state} word={m.state} />{' '}
              {m.plan && m.plan_status && <Link to={`/plans/${m.plan}`}>its plan</Link>}
            </Td>
            <Td dataLabel="Message" className="break">
              {messageOf(m)}
              {m.hint && <div className="hint break">{m.hint}</div>}
            </Td>
            {may && <Td isActionCell>{m.state !== 'skipped' && <SkipButton of={of} cluster={m.name} />}</Td>}
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}

// usePut shows the campaign that an action answered with at once.
function usePut(): (c: Campaign) => void {
  const queries = useQueryClient()
  return (c) => {
    queries.setQueryData(api.queryOptions('get', '/campaigns/{id}', path(c.id)).queryKey, c)
    void queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/campaigns' })
  }
}

function Verbs({ of }: { of: Campaign }) {
  const put = usePut()
  const allowed = verbsOf(of)
  if (!acts(useMe())) return null
  return (
    <Actions>
      {allowed.includes('agree') && (
        <AskButton ask={(close) => <AgreeDialog now={of} put={put} close={close} />}>Agree to wave {of.wave}</AskButton>
      )}
      {allowed.includes('resume') && (
        <AskButton
          variant="secondary"
          ask={(close) => (
            <Ask
              title="Resume this campaign?"
              verb="Resume"
              close={close}
              act={async () => put(await must(client.POST('/campaigns/{id}/resume', path(of.id))))}
            >
              <Content component="p">
                Clusters that have failed no longer count. Clusters without a plan are planned again.
              </Content>
              <Command>{`directorctl campaign resume ${of.id}`}</Command>
            </Ask>
          )}
        >
          Resume
        </AskButton>
      )}
      {allowed.includes('pause') && <ReasonButton of={of} verb="pause" put={put} />}
      {allowed.includes('end') && <ReasonButton of={of} verb="end" put={put} />}
    </Actions>
  )
}

// AgreeDialog shows the wave as it was when it was opened: that is what the agreement names by its hash.
function AgreeDialog({ now, put, close }: { now: Campaign; put: (c: Campaign) => void; close: () => void }) {
  const [c] = useState(now)
  const wave = list(c.waves)[c.wave - 1]
  const hash = wave?.hash ?? ''
  return (
    <Ask
      title={`Start the plans of wave ${c.wave}?`}
      verb="Agree"
      ready={hash !== ''}
      close={close}
      act={async () =>
        put(await must(client.POST('/campaigns/{id}/agree', { ...path(c.id), body: { wave: c.wave, hash } })))
      }
    >
      <Content component="p">The hash of these plans is {hash.slice(0, 12)}.</Content>
      <More of={list(c.clusters).filter((m) => m.wave === c.wave && m.plan)} size={50}>
        {(some) => (
          <Table role="table" aria-label="Plans of the wave" variant="compact">
            <Thead>
              <Tr>
                <Th>Cluster</Th>
                <Th>State</Th>
                <Th>Plan</Th>
              </Tr>
            </Thead>
            <Tbody>
              {some.map((m) => (
                <Tr key={m.name}>
                  <Td dataLabel="Cluster">{m.name}</Td>
                  <Td dataLabel="State">{m.state}</Td>
                  <Td dataLabel="Plan">
                    <Link to={`/plans/${m.plan}`} className="break">
                      {m.summary || m.plan}
                    </Link>
                  </Td>
                </Tr>
              ))}
            </Tbody>
          </Table>
        )}
      </More>
      <Command>{`directorctl campaign agree ${c.id} --wave ${c.wave} --hash ${hash}`}</Command>
    </Ask>
  )
}

const reasons = {
  pause: {
    verb: 'Pause',
    title: 'Pause this campaign?',
    text: 'No further plan starts. The running ones continue.',
  },
  end: {
    verb: 'End',
    title: 'End this campaign for good?',
    text: 'Nothing starts any more. The running plans continue.',
  },
} as const

function ReasonButton({ of, verb, put }: { of: Campaign; verb: 'pause' | 'end'; put: (c: Campaign) => void }) {
  const [reason, setReason] = useState('')
  const words = reasons[verb]
  const init = { ...path(of.id), body: { reason } }
  return (
    <AskButton
      variant="secondary"
      ask={(close) => (
        <Ask
          title={words.title}
          verb={words.verb}
          danger={verb === 'end'}
          close={close}
          act={async () =>
            put(
              await must(
                verb === 'end' ? client.POST('/campaigns/{id}/end', init) : client.POST('/campaigns/{id}/pause', init),
              ),
            )
          }
        >
          <Content component="p">{words.text}</Content>
          <FormGroup label="Why, for those who wonder" fieldId={`${verb}-reason`}>
            <TextInput id={`${verb}-reason`} value={reason} maxLength={500} onChange={(_, v) => setReason(v)} />
          </FormGroup>
          <Command>{`directorctl campaign ${verb} ${of.id}${flag('reason', reason)}`}</Command>
        </Ask>
      )}
    >
      {words.verb}
    </AskButton>
  )
}

function SkipButton({ of, cluster }: { of: Campaign; cluster: string }) {
  const put = usePut()
  const [reason, setReason] = useState('')
  return (
    <AskButton
      variant="link"
      isInline
      aria-label={`Skip ${cluster}`}
      ask={(close) => (
        <Ask
          title={`Take ${cluster} out of this campaign?`}
          verb="Skip"
          danger
          ready={reason.trim() !== ''}
          close={close}
          act={async () =>
            put(await must(client.POST('/campaigns/{id}/skip', { ...path(of.id), body: { cluster, reason } })))
          }
        >
          <Content component="p">A plan of it that runs continues.</Content>
          <FormGroup label="Why it is left out" fieldId="skip-reason" isRequired>
            <TextInput id="skip-reason" isRequired value={reason} maxLength={500} onChange={(_, v) => setReason(v)} />
          </FormGroup>
          <Command>
            {`directorctl campaign skip ${of.id} --cluster ${cluster} --reason ${quoted(reason || 'WHY')}`}
          </Command>
        </Ask>
      )}
    >
      Skip
    </AskButton>
  )
}
