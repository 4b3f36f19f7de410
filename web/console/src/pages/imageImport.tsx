import { Button, Form, FormGroup, FormSelect, FormSelectOption, Progress, TextInput } from '@patternfly/react-core'
import { useEffect, useRef, useState, type FormEvent } from 'react'
import { Link } from 'react-router'
import { client, type Schemas } from '../api/client'
import { must } from '../api/must'
import { send } from '../forms/upload'
import { Actions } from '../ui/actions'
import { Alert } from '../ui/alert'
import { Command, quoted } from '../ui/command'
import { Facts, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { size } from '../ui/size'

type Job = Schemas['ImageJob']
type Trust = 'signed' | 'unsigned'

interface Stage {
  text: string
  done: number
  total: number
}

// sumOf has a worker compute the checksum of the file.
function sumOf(file: File, done: (bytes: number) => void, signal: AbortSignal): Promise<string> {
  const worker = new Worker(new URL('../forms/hash.worker.ts', import.meta.url), { type: 'module' })
  return new Promise<string>((resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error))
    worker.onerror = () => reject(new Error('The browser cannot compute the checksum of the file.'))
    worker.onmessage = (e: MessageEvent<{ bytes?: number; sum?: string; failed?: string }>) => {
      if (e.data.bytes !== undefined) done(e.data.bytes)
      if (e.data.sum !== undefined) resolve(e.data.sum)
      if (e.data.failed !== undefined) reject(new Error(e.data.failed))
    }
    worker.postMessage(file)
  }).finally(() => worker.terminate())
}

const wait = (milliseconds: number) => new Promise<void>((resolve) => setTimeout(resolve, milliseconds))

// Proof is what makes the image trusted, or why it is used without.
type Proof = Pick<Schemas['ImageImport'], 'checksum' | 'signature' | 'unsigned' | 'kubernetes'>

interface Order {
  file: File
  proof: Proof
  signal: AbortSignal
  show: (stage: Stage) => void
}

// bring sends the file and has it imported. It can be asked again after any failure: what has arrived stays.
async function bring({ file, proof, signal, show }: Order): Promise<Job> {
  const sum = await sumOf(file, (done) => show({ text: 'Computing the checksum', done, total: file.size }), signal)
  const { kubernetes, ...trust } = proof
  const upload = await send(
    file,
    {
      begin: () => must(client.POST('/uploads', { body: { sha256: sum, size: file.size, name: file.name, ...trust } })),
      add: (id, offset, piece) =>
        must(
          client.PATCH('/uploads/{id}', {
            params: { path: { id }, header: { 'Upload-Offset': offset } as never },
            headers: { 'Content-Type': 'application/offset+octet-stream', 'Upload-Offset': String(offset) },
            body: piece as never,
            bodySerializer: (b: unknown) => b as Blob,
            signal,
          }),
        ),
      wait,
    },
    (done) => show({ text: 'Sending', done, total: file.size }),
    signal,
  )
  let job = await must(client.POST('/images', { body: { upload, kubernetes, ...trust } }))
  while (job.stage !== 'done' && job.stage !== 'failed') {
    signal.throwIfAborted()
    show({ text: job.stage === 'converting' ? 'Converting' : 'Checking', done: job.done ?? 0, total: job.total ?? 0 })
    await wait(500)
    job = await must(client.GET('/image-jobs/{id}', { params: { path: { id: job.id } }, signal }))
  }
  if (job.problem) throw job.problem
  return job
}

// ImageImport brings a node image from this machine to the director.
export default function ImageImport() {
  const [file, setFile] = useState<File>()
  const [trust, setTrust] = useState<Trust>('signed')
  const [checksum, setChecksum] = useState<File>()
  const [signature, setSignature] = useState<File>()
  const [reason, setReason] = useState('')
  const [kubernetes, setKubernetes] = useState('')
  const [stage, setStage] = useState<Stage>()
  const [failed, setFailed] = useState<unknown>()
  const [done, setDone] = useState<Job>()
  const abort = useRef<AbortController>(undefined)
  useEffect(() => () => abort.current?.abort(), [])
  const ready = file && (trust === 'signed' ? checksum && signature : reason.trim().split(/\s+/).length >= 3)

  const submit = async (e: FormEvent) => {
    e.preventDefault()
    if (!file || !ready) return
    const control = new AbortController()
    abort.current = control
    setFailed(undefined)
    setDone(undefined)
    try {
      const proof: Proof =
        trust === 'signed'
          ? { checksum: await checksum?.text(), signature: await signature?.text() }
          : { unsigned: reason.trim() }
      setDone(
        await bring({
          file,
          proof: { ...proof, kubernetes: kubernetes || undefined },
          signal: control.signal,
          show: setStage,
        }),
      )
    } catch (err) {
      if (!control.signal.aborted) setFailed(err)
    } finally {
      setStage(undefined)
    }
  }
  const choose = (id: string, label: string, accept: string, set: (f: File | undefined) => void) => (
    <FormGroup label={label} fieldId={id} isRequired>
      <input
        id={id}
        type="file"
        accept={accept}
        disabled={stage !== undefined}
        onChange={(e) => set(e.target.files?.[0])}
      />
    </FormGroup>
  )
  return (
    <Page title="Import an image" above={[{ to: '/infrastructure/images', text: 'Images' }]}>
      <Form onSubmit={(e) => void submit(e)}>
        {choose('image-file', 'Image: qcow2, raw, VMDK or OVA', '', setFile)}
        <FormGroup label="Trust" fieldId="image-trust">
          <FormSelect
            id="image-trust"
            value={trust}
            isDisabled={stage !== undefined}
            onChange={(_, v) => setTrust(v as Trust)}
          >
            <FormSelectOption value="signed" label="It is signed with a trusted key" />
            <FormSelectOption value="unsigned" label="It has no signature" />
          </FormSelect>
        </FormGroup>
        {trust === 'signed' ? (
          <>
            {choose('image-checksum', 'Checksum: FILE.sha256', '.sha256', setChecksum)}
            {choose('image-signature', 'Signature: FILE.sha256.minisig', '.minisig', setSignature)}
          </>
        ) : (
          <FormGroup
            label="Why it is used without a signature, in three words or more"
            fieldId="image-reason"
            isRequired
          >
            <TextInput id="image-reason" isRequired value={reason} onChange={(_, v) => setReason(v)} />
          </FormGroup>
        )}
        <FormGroup label="Kubernetes that it carries, if the image does not say so itself" fieldId="image-kubernetes">
          <TextInput
            id="image-kubernetes"
            placeholder="such as v1.37.2"
            value={kubernetes}
            onChange={(_, v) => setKubernetes(v)}
          />
        </FormGroup>
        {failed !== undefined && <ProblemAlert of={failed} />}
        {stage && (
          <Progress
            aria-label="Import"
            title={stage.text}
            label={stage.total ? `${size(stage.done)} of ${size(stage.total)}` : ' '}
            value={stage.total ? Math.floor((100 * stage.done) / stage.total) : 0}
          />
        )}
        {done?.file && <Imported file={done.file} />}
        <Actions>
          <Button type="submit" isDisabled={!ready || stage !== undefined} isLoading={stage !== undefined}>
            Import
          </Button>
          {stage && (
            <Button variant="secondary" onClick={() => abort.current?.abort()}>
              Stop
            </Button>
          )}
        </Actions>
        <Command>{`directorctl image import ${quoted(file?.name ?? 'FILE')}`}</Command>
      </Form>
    </Page>
  )
}

function Imported({ file }: { file: Schemas['ImageFile'] }) {
  return (
    <Alert isInline variant="success" title="The image is on the director." role="status">
      <Facts
        of={[
          ['Kubernetes', file.kubernetes],
          ['Size', `${size(file.size)}, a disk of ${size(file.virtual)}`],
          [
            'SHA-256',
            <span key="s" className="mono break">
              {file.sha256}
            </span>,
          ],
        ]}
      />
      <Link to={`/apply?template=Image&sha256=${file.sha256}&kubernetes=${encodeURIComponent(file.kubernetes)}`}>
        Write the document that clusters name
      </Link>
    </Alert>
  )
}
