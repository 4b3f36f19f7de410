import { Button, Form, FormGroup, FormSelect, FormSelectOption, Progress, TextInput } from '@patternfly/react-core'
import { useEffect, useRef, useState, type FormEvent } from 'react'
import { Link } from 'react-router'
import { client, type Schemas } from '../api/client'
import { must } from '../api/must'
import { problemOf } from '../api/problem'
import { compared, send } from '../forms/upload'
import { Actions } from '../ui/actions'
import { Alert } from '../ui/alert'
import { Command, quoted } from '../ui/command'
import { Facts, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { size } from '../ui/size'

type Job = Schemas['ImageJob']
type Upload = Schemas['Upload']
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
  ahead: boolean // the browser computes the checksum before it sends
  signal: AbortSignal
  show: (stage: Stage) => void
}

// begun remembers the upload of a file whose checksum is not known, so that it continues after a reload of the page. What
// arrives is compared in the end, so a file that only looks like the same one does no harm.
const begun = {
  key: (file: File) => `director.upload.${file.name}.${file.size}.${file.lastModified}`,
  get: (file: File): string | undefined => {
    try {
      return sessionStorage.getItem(begun.key(file)) ?? undefined
    } catch {
      return undefined
    }
  },
  set: (file: File, id: string | undefined) => {
    try {
      if (id === undefined) sessionStorage.removeItem(begun.key(file))
      else sessionStorage.setItem(begun.key(file), id)
    } catch {
      // Then it begins again after a reload.
    }
  },
}

// bring sends the file, and returns the checksum that the director has it under. It can be asked again after any
// failure: what has arrived stays. Without a checksum ahead, the director computes it.
async function bring({ file, proof, ahead, signal, show }: Order): Promise<string> {
  const sum = ahead
    ? await sumOf(file, (done) => show({ text: 'Computing the checksum', done, total: file.size }), signal)
    : undefined
  const { kubernetes: _, ...trust } = proof
  let id = sum ? undefined : begun.get(file)
  const begin = async (): Promise<Upload> => {
    if (id !== undefined) {
      try {
        return await must(client.GET('/uploads/{id}', { params: { path: { id } } }))
      } catch (err) {
        if (problemOf(err).status !== 404) throw err // it was given up meanwhile
      }
    }
    const upload = await must(
      client.POST('/uploads', { body: { sha256: sum, size: file.size, name: file.name, ...trust } }),
    )
    if (upload.unchecked) {
      id = upload.id
      begun.set(file, id)
    }
    return upload
  }
  const sent = await send(
    file,
    {
      begin,
      add: (at, offset, piece) =>
        must(
          client.PATCH('/uploads/{id}', {
            params: { path: { id: at }, header: { 'Upload-Offset': offset } as never },
            headers: { 'Content-Type': 'application/offset+octet-stream', 'Upload-Offset': String(offset) },
            body: piece as never,
            bodySerializer: (b: unknown) => b as Blob,
            signal,
          }),
        ),
      wait,
    },
    (done) => show({ text: done === file.size ? 'Computing the checksum' : 'Sending', done, total: file.size }),
    signal,
  )
  begun.set(file, undefined)
  return sent
}

// importOf has the upload made an image.
async function importOf(upload: string, { proof, signal, show }: Order): Promise<Job> {
  let job = await must(client.POST('/images', { body: { upload, ...proof } }))
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
  const [ahead, setAhead] = useState(true)
  const [arrived, setArrived] = useState<{ sum: string; order: Order }>()
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
    setArrived(undefined)
    try {
      const proof: Proof =
        trust === 'signed'
          ? { checksum: await checksum?.text(), signature: await signature?.text() }
          : { unsigned: reason.trim() }
      const order: Order = {
        file,
        proof: { ...proof, kubernetes: kubernetes || undefined },
        ahead: trust === 'signed' || ahead,
        signal: control.signal,
        show: setStage,
      }
      const sum = await bring(order)
      if (order.ahead) setDone(await importOf(sum, order))
      else setArrived({ sum, order })
    } catch (err) {
      if (!control.signal.aborted) setFailed(err)
    } finally {
      setStage(undefined)
    }
  }
  // A person has compared the checksum, and says what becomes of the file.
  const decide = async (take: boolean) => {
    if (!arrived) return
    const control = new AbortController()
    abort.current = control
    setFailed(undefined)
    try {
      if (take) setDone(await importOf(arrived.sum, { ...arrived.order, signal: control.signal }))
      else await must(client.DELETE('/uploads/{id}', { params: { path: { id: arrived.sum } } }))
      setArrived(undefined)
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
        {trust === 'unsigned' && (
          <FormGroup label="Checksum" fieldId="image-ahead">
            <FormSelect
              id="image-ahead"
              value={ahead ? 'ahead' : 'after'}
              isDisabled={stage !== undefined}
              onChange={(_, v) => setAhead(v === 'ahead')}
            >
              <FormSelectOption value="ahead" label="This browser computes it first, and damage on the way is found" />
              <FormSelectOption value="after" label="The director computes it, and you compare it" />
            </FormSelect>
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
        {arrived && !stage && <Compare sum={arrived.sum} decide={(take) => void decide(take)} />}
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

// Compare shows the checksum that the director computed of what has arrived. Nothing is made of it before a person has
// compared it with what its publisher says.
function Compare({ sum, decide }: { sum: string; decide: (take: boolean) => void }) {
  const [pasted, setPasted] = useState('')
  const is = compared(sum, pasted)
  return (
    <Alert isInline variant="info" title="All of the file has arrived. Compare its checksum." role="status">
      <div className="stack">
        <Facts
          of={[
            [
              'SHA-256',
              <span key="s" className="mono break">
                {sum}
              </span>,
            ],
          ]}
        />
        <FormGroup label="What its publisher says" fieldId="image-publisher">
          <TextInput
            id="image-publisher"
            value={pasted}
            spellCheck={false}
            autoComplete="off"
            validated={is === 'other' ? 'error' : is === 'same' ? 'success' : 'default'}
            aria-describedby="image-publisher-is"
            onChange={(_, v) => setPasted(v)}
          />
          <p id="image-publisher-is" className="hint">
            {is === 'nothing' && 'Paste it here, or compare with your own eyes.'}
            {is === 'same' && 'It is the same.'}
            {is === 'other' && 'It is another one: the file is not what its publisher made, or was damaged.'}
          </p>
        </FormGroup>
        <Actions>
          <Button isDisabled={is === 'other'} onClick={() => decide(true)}>
            It is right: import
          </Button>
          <Button variant="secondary" isDanger onClick={() => decide(false)}>
            Throw the file away
          </Button>
        </Actions>
      </div>
    </Alert>
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
