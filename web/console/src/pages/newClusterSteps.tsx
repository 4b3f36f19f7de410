import {
  Button,
  Card,
  CardBody,
  CardTitle,
  Content,
  Form,
  FormGroup,
  FormSelect,
  FormSelectOption,
  Radio,
} from '@patternfly/react-core'
import { useId, useState, type ReactNode } from 'react'
import { Link } from 'react-router'
import { api, list } from '../api/client'
import { useMe } from '../app/me'
import { autoSize, fields, sizes, workersOf } from '../forms/fields'
import {
  describe,
  providerType,
  referred,
  refer,
  rename,
  takeBundle,
  takeImage,
  useKnown,
  type Ground,
  type Known,
} from '../forms/first'
import { FormFields } from '../forms/formFields'
import type { Kind } from '../forms/kinds'
import type { Mark } from '../forms/places'
import { get, partOf, set } from '../forms/tree'
import { SetDialog } from './credentials'
import { LookAtDraft, Looking, useDiscovery, useDraftDiscovery } from './discovery'
import { Pools } from './pools'

interface StepProps {
  text: string
  edit: (text: string) => void
  known: Known
  marks: Mark[]
}

const words: Record<Ground, [title: string, text: string]> = {
  Provider: ['The hypervisor', 'Where VMs run: hosts with libvirt, or a vCenter.'],
  Network: ['The network of the nodes', 'The director gives addresses of it to nodes. They must be free.'],
  Image: ['The image', 'What nodes start from. It carries the programs of one version of Kubernetes.'],
  Release: ['The release', 'The images and packages of the same version of Kubernetes, as a bundle on the director.'],
}

// namesOf are the documents of a kind that a field may name: those of the director, and the one of the text.
function namesOf(text: string, known: Known): (kind: Kind) => string[] {
  return (kind) => {
    const own = partOf(text, kind)?.name
    return [...new Set([...(own ? [own] : []), ...(known[kind as Ground] ?? [])])]
  }
}

// renaming has what names the document follow when its name is changed in the form.
function renaming(kind: Kind, text: string, edit: (text: string) => void): (now: string) => void {
  return (now) => {
    const name = get(now, kind, ['metadata', 'name'])
    edit(name !== get(text, kind, ['metadata', 'name']) && name !== undefined ? rename(now, kind, String(name)) : now)
  }
}

// GroundStep takes a document that is there, or describes one.
export function GroundStep({ kind, text, edit, known, marks }: StepProps & { kind: Ground }) {
  const own = partOf(text, kind) !== undefined
  const names = known[kind]
  const [title, about] = words[kind]
  const provider =
    kind === 'Network' ? String(get(text, 'Network', ['spec', 'provider']) ?? '') : partOf(text, kind)?.name
  const asks = own && (kind === 'Provider' || kind === 'Network')
  const there = provider !== undefined && known.Provider.includes(provider)
  const drafted = asks && !there && provider !== undefined && partOf(text, 'Provider')?.name === provider
  const stored = useDiscovery(asks && there ? provider : undefined)
  const draft = useDraftDiscovery(text)
  const discovery = drafted ? draft : stored
  return (
    <Card component="section">
      <CardTitle component="h2">{title}</CardTitle>
      <CardBody className="stack">
        <Content component="p">{about}</Content>
        <Form onSubmit={(e) => e.preventDefault()}>
          {names.length > 0 && (
            <>
              <Radio
                id={`${kind}-known`}
                name={`${kind}-which`}
                label="Use one that is there"
                isChecked={!own}
                onChange={() => edit(useKnown(text, kind, names[0] ?? ''))}
              />
              <Radio
                id={`${kind}-new`}
                name={`${kind}-which`}
                label="Describe a new one"
                isChecked={own}
                onChange={() => edit(describe(text, kind))}
              />
            </>
          )}
          {!own && (
            <FormGroup label={kind} fieldId={`${kind}-name`}>
              <FormSelect
                id={`${kind}-name`}
                value={referred(text, kind)}
                onChange={(_, v) => edit(refer(text, kind, v))}
              >
                {names.map((n) => (
                  <FormSelectOption key={n} value={n} label={n} />
                ))}
              </FormSelect>
            </FormGroup>
          )}
          {own && kind === 'Provider' && <ProviderType text={text} edit={edit} />}
          {own && kind === 'Image' && <ImportedImage text={text} edit={edit} />}
          {own && kind === 'Release' && <ImportedBundle text={text} edit={edit} />}
          {own && (
            <FormFields
              kind={kind}
              fields={fields[kind] ?? []}
              text={text}
              names={namesOf(text, known)}
              marks={marks}
              edit={renaming(kind, text, edit)}
              found={list(discovery.data?.items)}
            >
              {kind === 'Provider' && <SetCredentials text={text} />}
              {drafted && <LookAtDraft provider={provider} of={draft} />}
              {asks && there && <Looking provider={provider} of={stored} />}
            </FormFields>
          )}
        </Form>
      </CardBody>
    </Card>
  )
}

function ProviderType({ text, edit }: { text: string; edit: (text: string) => void }) {
  return (
    <FormGroup label="What runs the VMs" fieldId="provider-type">
      <FormSelect
        id="provider-type"
        value={String(get(text, 'Provider', ['spec', 'type']) ?? '')}
        onChange={(_, v) => edit(providerType(text, v))}
      >
        <FormSelectOption value="libvirt" label="Hosts with libvirt and QEMU" />
        <FormSelectOption value="vsphere" label="vSphere" />
      </FormSelect>
    </FormGroup>
  )
}

// SetCredentials keeps the password of a vCenter: it is sent at once, and is never part of the text.
function SetCredentials({ text }: { text: string }) {
  const me = useMe()
  const [open, setOpen] = useState(false)
  const [done, setDone] = useState(false)
  const name = get(text, 'Provider', ['spec', 'vsphere', 'credentials'])
  if (name === undefined || me.role !== 'admin') return null
  return (
    <div>
      <Button variant="secondary" onClick={() => setOpen(true)}>
        Set the credentials {name}
      </Button>
      {done && <span role="status"> They are set.</span>}
      {open && <SetDialog name={String(name)} close={() => setOpen(false)} changed={() => setDone(true)} />}
    </div>
  )
}

interface ImportedProps {
  text: string
  edit: (text: string) => void
}

// ImportedImage offers the images that the director has and that no document names yet.
function ImportedImage({ text, edit }: ImportedProps) {
  const asked = api.useQuery('get', '/images', {})
  const free = list(asked.data?.items).filter((i) => !i.name)
  return (
    <Imported
      label="An image that was imported"
      value={String(get(text, 'Image', ['spec', 'sha256']) ?? '')}
      of={free.map((i) => [i.sha256, `${i.kubernetes ?? ''} ${i.sha256.slice(0, 16)}`])}
      take={(sha256) => {
        const image = free.find((i) => i.sha256 === sha256)
        if (image) edit(takeImage(text, image))
      }}
    >
      <Link to="/images/import?for=cluster">Import an image</Link>
    </Imported>
  )
}

// ImportedBundle offers the release bundles that the director has and that no document names yet.
function ImportedBundle({ text, edit }: ImportedProps) {
  const asked = api.useQuery('get', '/releases', {})
  const free = list(asked.data?.items).flatMap((r) => (r.file && !r.name ? [{ ...r.file, unsigned: r.unsigned }] : []))
  return (
    <Imported
      label="A bundle that was imported"
      value={String(get(text, 'Release', ['spec', 'digest']) ?? '')}
      of={free.map((f) => [f.digest, `${f.name}, ${f.kubernetes} ${f.digest.slice(0, 16)}`])}
      take={(digest) => {
        const bundle = free.find((f) => f.digest === digest)
        if (bundle) edit(takeBundle(text, bundle))
      }}
    >
      <Link to="/releases/import?for=cluster">Import a bundle</Link>
    </Imported>
  )
}

interface ChoiceProps {
  label: string
  value: string
  of: [value: string, label: string][]
  take: (value: string) => void
  children: ReactNode // leads to the import
}

function Imported({ label, value, of, take, children }: ChoiceProps) {
  const id = useId()
  return (
    <>
      {of.length > 0 && (
        <FormGroup label={label} fieldId={id}>
          <FormSelect id={id} value={of.some(([v]) => v === value) ? value : ''} onChange={(_, v) => take(v)}>
            <FormSelectOption value="" label="Choose" />
            {of.map(([v, text]) => (
              <FormSelectOption key={v} value={v} label={text} />
            ))}
          </FormSelect>
        </FormGroup>
      )}
      <p>{children}; what is filled in here stays.</p>
    </>
  )
}

export function ClusterStep({ text, edit, known, marks }: StepProps) {
  const names = namesOf(text, known)
  const change = renaming('Cluster', text, edit)
  return (
    <>
      <Card component="section">
        <CardTitle component="h2">The cluster</CardTitle>
        <CardBody>
          <Form onSubmit={(e) => e.preventDefault()}>
            <FormFields
              kind="Cluster"
              fields={(fields.Cluster ?? []).slice(0, 7)}
              text={text}
              names={names}
              marks={marks}
              edit={change}
            />
            <Size text={text} edit={edit} />
            <FormFields
              kind="Cluster"
              fields={(fields.Cluster ?? []).slice(7)}
              text={text}
              names={names}
              marks={marks}
              edit={change}
            />
          </Form>
        </CardBody>
      </Card>
      <Pools text={text} edit={edit} names={names} marks={marks} />
    </>
  )
}

// Size is a preset of the masters' CPUs and memory. Numbers that are written out win, so a preset takes them away.
function Size({ text, edit }: { text: string; edit: (text: string) => void }) {
  const size = String(get(text, 'Cluster', ['spec', 'masters', 'size']) ?? '')
  const workers = workersOf(text)
  const { cpus, memoryGB } = autoSize(workers)
  const choose = (v: string) => {
    const sized = set(text, 'Cluster', ['spec', 'masters', 'size'], v === '' ? undefined : v)
    if (v === '') return edit(sized)
    const bare = set(sized, 'Cluster', ['spec', 'masters', 'cpus'], undefined)
    edit(set(bare, 'Cluster', ['spec', 'masters', 'memory'], undefined))
  }
  return (
    <FormGroup label="Size of the masters" fieldId="masters-size">
      <FormSelect id="masters-size" value={size} onChange={(_, v) => choose(v)}>
        <FormSelectOption value="" label="written out below" />
        {sizes.map(([v, label]) => (
          <FormSelectOption key={v} value={v} label={label} />
        ))}
      </FormSelect>
      {size === 'auto' && (
        <p className="hint">
          For {workers} workers: {cpus} CPUs and {memoryGB} GB for each master.
        </p>
      )}
    </FormGroup>
  )
}
