import {
  Card,
  CardBody,
  CardTitle,
  Content,
  FormGroup,
  FormSelect,
  FormSelectOption,
  TextInput,
} from '@patternfly/react-core'
import { useState } from 'react'
import { client } from '../api/client'
import { must } from '../api/must'
import { administers, useMe } from '../app/me'
import { Ask, AskButton } from '../ui/ask'
import { Command } from '../ui/command'
import { save } from '../ui/save'
import { usePlan } from './usePlan'

// ClusterAccess has every way into a cluster: one's own, an administrator's, and the last resort.
export function ClusterAccess({ cluster, project }: { cluster: string; project?: string }) {
  const me = useMe()
  return (
    <div className="stack">
      <Card component="section">
        <CardTitle component="h2">As yourself</CardTitle>
        <CardBody className="stack">
          <Content component="p">
            This kubeconfig is the same for everyone and holds no secret. kubectl asks directorctl for a token of the
            user who is logged in; the cluster knows you as director:{me.user}.
          </Content>
          <OwnKubeconfig cluster={cluster} />
          <Command>{`directorctl kubeconfig ${cluster} -o ${cluster}.kubeconfig`}</Command>
        </CardBody>
      </Card>
      {administers(me, { name: cluster, project }) && (
        <>
          <Card component="section">
            <CardTitle component="h2">As an administrator</CardTitle>
            <CardBody className="stack">
              <Content component="p">
                A kubeconfig with a client certificate works also while the director is away.
              </Content>
              <AdminKubeconfig cluster={cluster} /> <Revoke cluster={cluster} />
            </CardBody>
          </Card>
          <Card component="section">
            <CardTitle component="h2">In an emergency</CardTitle>
            <CardBody className="stack">
              <Content component="p">
                The cluster accepts this kubeconfig whatever its own rules say, and nothing ends it before its time.
              </Content>
              <BreakGlass cluster={cluster} />
            </CardBody>
          </Card>
          <Card component="section">
            <CardTitle component="h2">Keys and logins</CardTitle>
            <CardBody>
              <BringKeys cluster={cluster} />
            </CardBody>
          </Card>
        </>
      )}
    </div>
  )
}

async function download(cluster: string, kubeconfig: Promise<unknown>): Promise<void> {
  save(`${cluster}.kubeconfig`, (await kubeconfig) as string, 'application/yaml')
}

function OwnKubeconfig({ cluster }: { cluster: string }) {
  return (
    <AskButton
      variant="secondary"
      ask={(close) => (
        <Ask
          title="Download your kubeconfig"
          verb="Download"
          close={close}
          act={() =>
            download(
              cluster,
              must(client.GET('/clusters/{name}/kubeconfig', { params: { path: { name: cluster } }, parseAs: 'text' })),
            )
          }
        >
          <Content component="p">It needs directorctl on the PATH, and a log-in with it.</Content>
        </Ask>
      )}
    >
      Your kubeconfig
    </AskButton>
  )
}

type Lives = [seconds: string, text: string][]

const lives: Lives = [
  ['3600', '1 hour'],
  ['28800', '8 hours'],
  ['86400', '1 day'],
  ['604800', '7 days'],
]
const shortLives: Lives = [
  ['3600', '1 hour'],
  ['7200', '2 hours'],
  ['14400', '4 hours'],
]

function Life({ of, life, set }: { of: Lives; life: string; set: (life: string) => void }) {
  return (
    <FormGroup label="Good for" fieldId="kubeconfig-life">
      <FormSelect id="kubeconfig-life" value={life} onChange={(_, v) => set(v)}>
        {of.map(([v, text]) => (
          <FormSelectOption key={v} value={v} label={text} />
        ))}
      </FormSelect>
    </FormGroup>
  )
}

function AdminKubeconfig({ cluster }: { cluster: string }) {
  const [life, setLife] = useState('28800')
  return (
    <AskButton
      variant="secondary"
      ask={(close) => (
        <Ask
          title="Download an administrator's kubeconfig"
          verb="Download"
          close={close}
          act={() =>
            download(
              cluster,
              must(
                client.POST('/clusters/{name}/kubeconfig', {
                  params: { path: { name: cluster } },
                  body: { ttl_seconds: Number(life) },
                  parseAs: 'text',
                }),
              ),
            )
          }
        >
          <Content component="p">
            It has a client certificate of its own, in your name. That you got it is in the audit trail.
          </Content>
          <Life of={lives} life={life} set={setLife} />
          <Command>{`directorctl kubeconfig ${cluster} --admin -o ${cluster}.kubeconfig`}</Command>
        </Ask>
      )}
    >
      Administrator's kubeconfig
    </AskButton>
  )
}

function Revoke({ cluster }: { cluster: string }) {
  return (
    <AskButton
      variant="secondary"
      isDanger
      ask={(close) => (
        <Ask
          title={`End every administrator's kubeconfig of ${cluster}?`}
          verb="End them"
          danger
          close={close}
          act={() => must(client.DELETE('/clusters/{name}/kubeconfig', { params: { path: { name: cluster } } }))}
        >
          <Content component="p">
            All that were downloaded so far end at once. Later ones are good. The nodes and the director keep their own.
          </Content>
          <Command>{`directorctl access revoke-kubeconfigs ${cluster}`}</Command>
        </Ask>
      )}
    >
      End all that were given out
    </AskButton>
  )
}

function BreakGlass({ cluster }: { cluster: string }) {
  const [life, setLife] = useState('3600')
  const [password, setPassword] = useState('')
  return (
    <AskButton
      variant="secondary"
      isDanger
      ask={(close) => (
        <Ask
          title="Download a kubeconfig that the cluster cannot refuse?"
          verb="Download"
          danger
          ready={password !== ''}
          close={() => {
            setPassword('')
            close()
          }}
          act={() =>
            download(
              cluster,
              must(
                client.POST('/clusters/{name}/break-glass', {
                  params: { path: { name: cluster } },
                  body: { password, ttl_seconds: Number(life) },
                  parseAs: 'text',
                }),
              ),
            )
          }
        >
          <Content component="p">
            It is for a cluster whose own rules lock everyone out. The audit trail notes it as an event of its own.
          </Content>
          <Life of={shortLives} life={life} set={setLife} />
          <FormGroup label="Your password" fieldId="break-glass-password">
            <TextInput
              id="break-glass-password"
              type="password"
              autoComplete="current-password"
              value={password}
              onChange={(_, v) => setPassword(v)}
            />
          </FormGroup>
          <Command>{`directorctl kubeconfig ${cluster} --break-glass -o ${cluster}.kubeconfig`}</Command>
        </Ask>
      )}
    >
      Break the glass
    </AskButton>
  )
}

function BringKeys({ cluster }: { cluster: string }) {
  const plan = usePlan(cluster)
  return (
    <AskButton
      variant="secondary"
      ask={(close) => (
        <Ask
          title="Bring the director's present keys to the masters?"
          verb="Make the plan"
          close={close}
          act={() => plan({ operation: 'cluster.token_keys' })}
        >
          <Content component="p">
            The masters check the tokens of people with these keys. Make this plan after the director's keys changed.
          </Content>
          <Command>{`directorctl rotate token-keys ${cluster}`}</Command>
        </Ask>
      )}
    >
      Bring the keys of tokens
    </AskButton>
  )
}
