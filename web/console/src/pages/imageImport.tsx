import { Button, Form, FormGroup, FormSelect, FormSelectOption, TextInput } from '@patternfly/react-core'
import { useState, type FormEvent } from 'react'
import { client, type Schemas } from '../api/client'
import { must } from '../api/must'
import { bring, type Delivery } from '../forms/bring'
import { ended } from '../forms/jobs'
import { compared } from '../forms/upload'
import { Actions } from '../ui/actions'
import { Alert } from '../ui/alert'
import { Command, flag, quoted } from '../ui/command'
import { Facts, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { size } from '../ui/size'
import { ImportActions, Onward, StageBar, Sum, TrustFields, unsignedFlag, useImport, useTrust } from './importParts'

type Job = Schemas['ImageJob']

// Proof is what makes the image trusted, or why it is used without.
type Proof = Pick<Schemas['ImageImport'], 'checksum' | 'signature' | 'unsigned' | 'kubernetes'>

interface Order extends Delivery {
  proof: Proof
}

// importOf has the upload made an image.
function importOf(upload: string, { proof, signal, show }: Order): Promise<Job> {
  return ended({
    start: () => must(client.POST('/images', { body: { upload, ...proof } })),
    again: (job) => must(client.GET('/image-jobs/{id}', { params: { path: { id: job.id } }, signal })),
    show: (j) =>
      show({ text: j.stage === 'converting' ? 'Converting' : 'Checking', done: j.done ?? 0, total: j.total ?? 0 }),
    signal,
  })
}

// ImageImport brings a node image from this machine to the director.
export default function ImageImport() {
  const [file, setFile] = useState<File>()
  const trust = useTrust()
  const [checksum, setChecksum] = useState<File>()
  const [signature, setSignature] = useState<File>()
  const [kubernetes, setKubernetes] = useState('')
  const [done, setDone] = useState<Job>()
  const [ahead, setAhead] = useState(true)
  const [arrived, setArrived] = useState<{ sum: string; order: Order }>()
  const { stage, failed, run, stop } = useImport()
  const signed = trust.trust === 'signed'
  const ready = file !== undefined && trust.ready && (!signed || (!!checksum && !!signature))

  const submit = async (e: FormEvent) => {
    e.preventDefault()
    if (!file || !ready || stage) return
    setDone(undefined)
    setArrived(undefined)
    await run(async (signal, show) => {
      const proof: Proof = signed
        ? { checksum: await checksum?.text(), signature: await signature?.text() }
        : { unsigned: trust.unsigned }
      const order: Order = {
        file,
        about: proof,
        proof: { ...proof, kubernetes: kubernetes || undefined },
        ahead: signed || ahead,
        signal,
        show,
      }
      const sum = await bring(order)
      if (order.ahead) setDone(await importOf(sum, order))
      else setArrived({ sum, order })
    })
  }
  // A person has compared the checksum, and says what becomes of the file.
  const decide = (take: boolean) =>
    run(async (signal) => {
      if (!arrived) return
      if (take) setDone(await importOf(arrived.sum, { ...arrived.order, signal }))
      else await must(client.DELETE('/uploads/{id}', { params: { path: { id: arrived.sum } } }))
      setArrived(undefined)
    })
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
        <TrustFields id="image" of={trust} busy={stage !== undefined}>
          {choose('image-checksum', 'Checksum: FILE.sha256', '.sha256', setChecksum)}
          {choose('image-signature', 'Signature: FILE.sha256.minisig', '.minisig', setSignature)}
        </TrustFields>
        {!signed && (
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
        {stage && <StageBar of={stage} />}
        {arrived && !stage && <Compare sum={arrived.sum} decide={(take) => void decide(take)} />}
        {done?.file && <Imported file={done.file} />}
        <ImportActions ready={ready} stage={stage} stop={stop} />
        <Command>
          {`directorctl image import ${quoted(file?.name ?? 'FILE')}${flag('kubernetes', kubernetes)}` +
            unsignedFlag(trust)}
        </Command>
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
        <Facts of={[['SHA-256', <Sum key="s">{sum}</Sum>]]} />
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
          ['SHA-256', <Sum key="s">{file.sha256}</Sum>],
        ]}
      />
      <Onward
        document={`/apply?template=Image&sha256=${file.sha256}&kubernetes=${encodeURIComponent(file.kubernetes)}`}
      />
    </Alert>
  )
}
