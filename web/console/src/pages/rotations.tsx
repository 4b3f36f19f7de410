// Certificates that are renewed, and authorities and keys that are changed, of a cluster.
import { Checkbox, Content, FormGroup, FormSelect, FormSelectOption, TextInput } from '@patternfly/react-core'
import { useState } from 'react'
import type { Schemas } from '../api/client'
import { now } from '../api/clock'
import { Ask, AskButton } from '../ui/ask'
import { Command, quoted } from '../ui/command'
import { day } from './certificateEnd'
import { usePlan } from './usePlan'

type Operation = NonNullable<Schemas['PlanRequest']['operation']>

interface Rotation {
  operation: Operation
  command: string // of directorctl rotate
  title: string
  about: string[]
}

const authority = 'All nodes trust both; then the new one signs every certificate; then the former one is forgotten.'
const rotations: Rotation[] = [
  {
    operation: 'cluster.ca',
    command: 'cluster-ca',
    title: 'Cluster authority',
    about: [
      'Another authority for the API servers, the kubelets and all their clients. Pods get it as kube-root-ca.crt.',
      authority,
      'Masters go one by one, workers in their window. Kubeconfigs with a certificate of the former one end.',
    ],
  },
  {
    operation: 'cluster.etcd_ca',
    command: 'etcd-ca',
    title: 'etcd authority',
    about: [
      "Another authority for etcd's members and for the API servers towards them.",
      authority,
      'Masters go one by one. Workers are not touched.',
    ],
  },
  {
    operation: 'cluster.front_proxy_ca',
    command: 'front-proxy-ca',
    title: 'Front-proxy authority',
    about: [
      'Another authority for the API servers towards extension API servers, such as the one of metrics.',
      authority,
      'Masters go one by one. Workers are not touched.',
    ],
  },
  {
    operation: 'cluster.ssh_authority',
    command: 'ssh-authority',
    title: 'SSH authority',
    about: [
      'All nodes trust another SSH authority, the director logs in by it, and the former one is taken from all nodes.',
      'Nothing restarts. All nodes have to be ready. Exported inventories open no node after it.',
    ],
  },
  {
    operation: 'cluster.encryption_key',
    command: 'encryption-key',
    title: 'Key for Secrets',
    about: [
      'Another key for Secrets at rest, with which all Secrets in etcd are encrypted again.',
      'Then the former key is taken from the masters. The director keeps it for older backups. Nothing restarts.',
    ],
  },
  {
    operation: 'cluster.service_account_key',
    command: 'service-account-key',
    title: 'Key for service account tokens',
    about: [
      'Another key signs the tokens of service accounts. All API servers accept it first, and then sign with it.',
      'API servers restart one by one. The tokens of pods are renewed within the hour, and the plan waits for it.',
      'While a Secret holds a token of the former key, the plan waits for a person, and names the Secret.',
    ],
  },
  {
    operation: 'cluster.rotate_pull_password',
    command: 'pull-password',
    title: 'Pull password',
    about: [
      "Another password for the director's registry. All nodes get it, with the authorities that the director has.",
      'Nothing restarts.',
    ],
  },
]

// Rotate has a change of an authority or a key planned.
export function Rotate({ cluster }: { cluster: string }) {
  const plan = usePlan(cluster)
  const [operation, setOperation] = useState<string>('cluster.ca')
  const chosen = rotations.find((r) => r.operation === operation) ?? rotations[0]
  if (!chosen) return null
  return (
    <AskButton
      variant="secondary"
      ask={(close) => (
        <Ask
          title={`Change an authority or a key of ${cluster}`}
          verb="Make the plan"
          act={() => plan({ operation: chosen.operation })}
          close={close}
        >
          <FormGroup label="What is changed" fieldId="rotation">
            <FormSelect
              id="rotation"
              value={operation}
              aria-describedby="rotation-about"
              onChange={(_, v) => setOperation(v)}
            >
              {rotations.map((r) => (
                <FormSelectOption key={r.operation} value={r.operation} label={r.title} />
              ))}
            </FormSelect>
          </FormGroup>
          <div id="rotation-about">
            {chosen.about.map((line) => (
              <Content component="p" key={line}>
                {line}
              </Content>
            ))}
          </div>
          <Content component="p">
            Nothing starts yet: the plan shows each step. If it stops half way, ask again.
          </Content>
          <Command>{`directorctl rotate ${chosen.command} ${quoted(cluster)}`}</Command>
        </Ask>
      )}
    >
      Change an authority or a key
    </AskButton>
  )
}

// What is renewed: what ends within so many days, before a date, or everything.
type Ends = '7' | '30' | '90' | '365' | 'date' | 'all'

// Renew has the renewal of certificates planned.
export function Renew({ cluster }: { cluster: string }) {
  const plan = usePlan(cluster)
  const [ends, setEnds] = useState<Ends>('30')
  const [date, setDate] = useState('')
  const [cold, setCold] = useState(false)
  const certificates = (): NonNullable<Schemas['PlanRequest']['certificates']> => {
    if (ends === 'all') return { made_before: now().toISOString(), cold }
    if (ends === 'date') return { end_before: new Date(date).toISOString(), cold }
    return { end_before: new Date(now().getTime() + Number(ends) * day).toISOString(), cold }
  }
  const within = ends === 'date' ? Math.ceil((new Date(date).getTime() - now().getTime()) / day) : Number(ends)
  const option = ends === 'all' ? ' --all' : Number.isNaN(within) ? '' : ` --ending-within ${within}d`
  return (
    <AskButton
      variant="primary"
      ask={(close) => (
        <Ask
          title={`Renew the certificates of ${cluster}?`}
          verb="Make the plan"
          ready={ends !== 'date' || !Number.isNaN(new Date(date).getTime())}
          act={() => plan({ operation: 'cluster.rotate_certs', certificates: certificates() })}
          close={close}
        >
          <FormGroup label="Which are renewed" fieldId="renew-ends">
            <FormSelect id="renew-ends" value={ends} onChange={(_, v) => setEnds(v as Ends)}>
              <FormSelectOption value="7" label="those that end within 7 days" />
              <FormSelectOption value="30" label="those that end within 30 days" />
              <FormSelectOption value="90" label="those that end within 90 days" />
              <FormSelectOption value="365" label="those that end within a year" />
              <FormSelectOption value="date" label="those that end before a date" />
              <FormSelectOption value="all" label="all, whenever they end" />
            </FormSelect>
          </FormGroup>
          {ends === 'date' && (
            <FormGroup label="Before" fieldId="renew-date" isRequired>
              <TextInput id="renew-date" type="date" isRequired value={date} onChange={(_, v) => setDate(v)} />
            </FormGroup>
          )}
          <Checkbox
            id="renew-cold"
            label="They have ended, and the API does not answer"
            isChecked={cold}
            onChange={(_, v) => setCold(v)}
            description="All masters are renewed over SSH before the API is asked anything."
          />
          <Content component="p">The plan renews masters one by one, then workers. No pod is moved.</Content>
          <Command>{`directorctl certs rotate ${quoted(cluster)}${option}${cold ? ' --cold' : ''}`}</Command>
        </Ask>
      )}
    >
      Renew
    </AskButton>
  )
}
