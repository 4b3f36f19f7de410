import { Content, FormGroup, FormSelect, FormSelectOption, TextInput } from '@patternfly/react-core'
import { useState } from 'react'
import { client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { Ask, AskButton } from '../ui/ask'
import { Command, quoted } from '../ui/command'
import { save } from '../ui/save'
import { Time } from '../ui/time'
import { usePlan } from './usePlan'

// BackUpNow has a backup of one of the clusters planned.
export function BackUpNow({ of }: { of: string[] }) {
  const [wanted, setWanted] = useState('')
  const cluster = wanted || (of[0] ?? '')
  const plan = usePlan(cluster)
  if (cluster === '') return null
  return (
    <AskButton
      ask={(close) => (
        <Ask title="Back up now?" verb="Make the plan" act={() => plan({ operation: 'cluster.backup' })} close={close}>
          {of.length > 1 && (
            <FormGroup label="Cluster" fieldId="backup-cluster">
              <FormSelect id="backup-cluster" value={cluster} onChange={(_, v) => setWanted(v)}>
                {of.map((name) => (
                  <FormSelectOption key={name} value={name} label={name} />
                ))}
              </FormSelect>
            </FormGroup>
          )}
          <Content component="p">
            The plan takes a snapshot of etcd of {cluster} on a healthy master and stores it, encrypted, in every target
            of the cluster. Each is read back and compared. The cluster works meanwhile.
          </Content>
          <Command>{`directorctl backup create ${quoted(cluster)}`}</Command>
        </Ask>
      )}
    >
      Back up now
    </AskButton>
  )
}

// Extract gives the browser the objects of a namespace as they are in a backup. They are shown nowhere: Secrets are
// among them.
export function Extract({ of, close }: { of: Schemas['Backup']; close: () => void }) {
  const [namespace, setNamespace] = useState('')
  const [kind, setKind] = useState('')
  const [name, setName] = useState('')
  const [password, setPassword] = useState('')
  const option = (flag: string, value: string) => (value ? ` ${flag} ${quoted(value)}` : '')
  return (
    <Ask
      title={`Take objects out of backup ${of.id}`}
      verb="Download"
      ready={namespace !== '' && password !== ''}
      close={close}
      act={async () => {
        const got = await must(
          client.POST('/backups/{backup}/objects', {
            params: { path: { backup: of.id } },
            body: { namespace, kind: kind || undefined, name: name || undefined, password },
          }),
        )
        const found = list(got.objects)
        if (found.length === 0) throw new Error(`The backup has no such object in namespace ${namespace}.`)
        const { stringify } = await import('yaml')
        save(`${namespace}.yaml`, found.map((o) => `---\n${stringify(o)}`).join(''), 'application/yaml')
      }}
    >
      <Content component="p">
        The objects as they were <Time at={of.made_at} />, Secrets too. Nothing is changed in the cluster: compare, and
        apply what you need with kubectl. It is noted in the audit trail.
      </Content>
      <FormGroup label="Namespace" fieldId="extract-namespace" isRequired>
        <TextInput
          id="extract-namespace"
          isRequired
          autoComplete="off"
          value={namespace}
          onChange={(_, v) => setNamespace(v)}
        />
      </FormGroup>
      <FormGroup label="Kind, such as Secret; all kinds if empty" fieldId="extract-kind">
        <TextInput id="extract-kind" autoComplete="off" value={kind} onChange={(_, v) => setKind(v)} />
      </FormGroup>
      <FormGroup label="Name; all objects if empty" fieldId="extract-name">
        <TextInput id="extract-name" autoComplete="off" value={name} onChange={(_, v) => setName(v)} />
      </FormGroup>
      <FormGroup label="Your password" fieldId="extract-password" isRequired>
        <TextInput
          id="extract-password"
          type="password"
          isRequired
          autoComplete="current-password"
          value={password}
          onChange={(_, v) => setPassword(v)}
        />
      </FormGroup>
      <Command>
        {`directorctl backup extract ${quoted(of.id)} -n ${quoted(namespace || 'NAMESPACE')}` +
          option('--kind', kind) +
          option('--name', name)}
      </Command>
    </Ask>
  )
}
