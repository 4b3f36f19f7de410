// The authority of the director itself, or of all directors on its database, and the change of it.
import { Button, Card, CardBody, CardTitle, Checkbox, Content } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { useMe } from '../app/me'
import { useAct } from '../ui/act'
import { Actions } from '../ui/actions'
import { Alert } from '../ui/alert'
import { Ask, AskButton } from '../ui/ask'
import { Td, Th, Tr } from '../ui/cells'
import { Command } from '../ui/command'
import { Answer, Facts } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { Status } from '../ui/status'
import { Time } from '../ui/time'

type Own = Schemas['DirectorAuthority']
type Stage = Own['stage']

const stages: Record<Stage, { of: string; word: string; about: string }> = {
  none: { of: 'ok', word: 'no change', about: 'One authority signs, and it alone is trusted.' },
  trust: {
    of: 'changing',
    word: 'both are trusted',
    about:
      'The former authority still signs. Give both to the nodes of each cluster: change its pull password. ' +
      'Everyone else needs both as well: directorctl ca pin.',
  },
  use: {
    of: 'changing',
    word: 'the next one signs',
    about: 'The former authority is still trusted. Drop it when everyone trusts the next one.',
  },
}

interface Change {
  to: Stage
  verb: string
  command: string // of directorctl ca director
  title: string
  about: string[]
}

// changes are what may be asked for in each stage.
const changes: Record<Stage, Change> = {
  none: {
    to: 'trust',
    verb: 'Begin a change',
    command: 'trust',
    title: 'Make the next authority?',
    about: [
      'Both are trusted from then on, and the present one signs.',
      'Once begun, the change can only be finished.',
    ],
  },
  trust: {
    to: 'use',
    verb: 'Use the next one',
    command: 'use',
    title: 'Have the next authority sign?',
    about: [
      'It signs the certificate of the API and of the registry. The key of the former one is deleted.',
      'All nodes are asked first what they trust. Nothing restarts.',
    ],
  },
  use: {
    to: 'none',
    verb: 'Drop the former one',
    command: 'drop',
    title: 'Drop the former authority?',
    about: [
      'Those who do not trust the next one are refused from then on: programs, browsers, and nodes that pull images.',
      'All nodes are asked first what they trust.',
    ],
  },
}

// OwnAuthority shows how far the change is, and brings it to its next stage.
export function OwnAuthority() {
  const me = useMe()
  const asked = api.useQuery('get', '/director-authority', {}, { refetchInterval: 10_000 })
  return (
    <Card component="section">
      <CardTitle component="h2">The authority of the director itself</CardTitle>
      <CardBody>
        <Answer of={asked}>
          {(own) => (
            <div className="stack">
              <Facts
                of={[
                  [
                    'Change',
                    <>
                      <Status of={stages[own.stage].of} word={stages[own.stage].word} /> {stages[own.stage].about}
                    </>,
                  ],
                  ['Directors', list(own.directors).length > 0 && <Followers of={list(own.directors)} />],
                ]}
              />
              <Trusted of={list(own.authorities)} />
              {me.scope === 'all' && <Verbs own={own} mayChange={me.role === 'admin'} />}
            </div>
          )}
        </Answer>
      </CardBody>
    </Card>
  )
}

const follows = { of: 'ok', word: 'follows' }
const late = { of: 'waiting', word: 'has not taken this stage yet' }

function Followers({ of }: { of: Schemas['AuthorityFollower'][] }) {
  return (
    <ul aria-label="Directors on the database">
      {of.map((d) => (
        <li key={d.name} className="break">
          <Status {...(d.follows ? follows : late)} /> {d.name}
        </li>
      ))}
    </ul>
  )
}

function Trusted({ of }: { of: Schemas['TrustedAuthority'][] }) {
  return (
    <Table role="table" aria-label="Authorities of the director" variant="compact">
      <Thead>
        <Tr>
          <Th>Authority</Th>
          <Th>Ends</Th>
          <Th>Signs</Th>
          <Th>Fingerprint</Th>
        </Tr>
      </Thead>
      <Tbody>
        {of.map((a) => (
          <Tr key={a.fingerprint}>
            <Td dataLabel="Authority" className="break">
              {a.subject}
            </Td>
            <Td dataLabel="Ends">
              <Time at={a.ends} />
            </Td>
            <Td dataLabel="Signs">{a.signs ? 'yes' : 'no'}</Td>
            <Td dataLabel="Fingerprint" className="break">
              <code>{a.fingerprint}</code>
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}

function Verbs({ own, mayChange }: { own: Own; mayChange: boolean }) {
  const queries = useQueryClient()
  const [looked, setLooked] = useState<Own>()
  const { busy, failed, act } = useAct()
  const look = () =>
    act(async () => {
      setLooked(await must(client.POST('/director-authority/verify', {})))
    })
  const changed = () => {
    setLooked(undefined)
    return queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/director-authority' })
  }
  return (
    <>
      <Actions>
        {mayChange && (
          <AskButton
            variant="secondary"
            isDanger={own.stage === 'use'}
            ask={(close) => <ChangeDialog change={changes[own.stage]} changed={changed} close={close} />}
          >
            {changes[own.stage].verb}
          </AskButton>
        )}
        {own.stage !== 'none' && (
          <Button variant="link" isLoading={busy} isDisabled={busy} onClick={() => void look()}>
            Ask all nodes what they trust
          </Button>
        )}
      </Actions>
      {own.stage !== 'none' && <Command>directorctl ca director --look</Command>}
      {failed !== undefined && <ProblemAlert of={failed} />}
      {looked?.stage === own.stage && <Looked of={list(looked.behind)} />}
    </>
  )
}

function Looked({ of }: { of: Schemas['NodeBehind'][] }) {
  return (
    <Alert
      isInline
      variant={of.length === 0 ? 'success' : 'warning'}
      title={of.length === 0 ? 'No node lacks the next authority.' : 'Nodes may not trust the next authority.'}
      role="status"
    >
      <ul>
        {of.map((b) => (
          <li key={`${b.cluster}/${b.node}`}>
            {b.node} of {b.cluster}: {b.why}
          </li>
        ))}
      </ul>
    </Alert>
  )
}

interface DialogProps {
  change: Change
  changed: () => Promise<unknown>
  close: () => void
}

function ChangeDialog({ change, changed, close }: DialogProps) {
  const [force, setForce] = useState(false)
  return (
    <Ask
      title={change.title}
      verb={change.verb}
      danger={change.to === 'none'}
      close={close}
      act={async () => {
        await must(client.POST('/director-authority', { body: { stage: change.to, force } }))
        await changed()
      }}
    >
      {change.about.map((line) => (
        <Content component="p" key={line}>
          {line}
        </Content>
      ))}
      {change.to !== 'trust' && (
        <Checkbox
          id="authority-force"
          label="Leave nodes behind that do not trust the next authority"
          isChecked={force}
          onChange={(_, v) => setForce(v)}
          description="They pull no images until another pull password has reached them."
        />
      )}
      <Command>{`directorctl ca director ${change.command}${force ? ' --force' : ''}`}</Command>
    </Ask>
  )
}
