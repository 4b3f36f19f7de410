import { Form, FormGroup, FormSelect, FormSelectOption } from '@patternfly/react-core'
import { useState, type FormEvent } from 'react'
import { client, type Schemas } from '../api/client'
import { must } from '../api/must'
import { bring, type Stage } from '../forms/bring'
import { ended } from '../forms/jobs'
import { Alert } from '../ui/alert'
import { Command, flag, quoted } from '../ui/command'
import { Facts, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { size } from '../ui/size'
import { ImportActions, Onward, StageBar, Sum, TrustFields, unsignedFlag, useImport, useTrust } from './importParts'
import { emptyMirror, fetchedFrom, isMirror, MirrorFields } from './mirror'
import { documentOf } from './releases'

type Job = Schemas['ReleaseJob']

// unpack has the upload made a bundle.
function unpack(upload: string, unsigned: string, show: (s: Stage) => void, signal: AbortSignal): Promise<Job> {
  return ended({
    start: () => must(client.POST('/releases', { body: { upload, unsigned: unsigned || undefined } })),
    again: (job) => must(client.GET('/release-jobs/{id}', { params: { path: { id: job.id } }, signal })),
    show: (j) =>
      show({ text: j.stage === 'unpacking' ? 'Unpacking' : 'Checking', done: j.done ?? 0, total: j.total ?? 0 }),
    signal,
  })
}

// ReleaseImport brings a release bundle to the director, from this machine or from a mirror.
export default function ReleaseImport() {
  const [mirrored, setMirrored] = useState(false)
  const [mirror, setMirror] = useState(emptyMirror)
  const [file, setFile] = useState<File>()
  const trust = useTrust()
  const [done, setDone] = useState<Schemas['ReleaseFile']>()
  const { stage, failed, run, stop } = useImport()
  const chosen = mirrored ? isMirror(mirror) : file !== undefined
  const ready = chosen && trust.ready
  const submit = async (e: FormEvent) => {
    e.preventDefault()
    if (!ready || stage) return
    setDone(undefined)
    await run(async (signal, show) => {
      const upload = mirrored
        ? await fetchedFrom(mirror, show, signal)
        : file && (await bring({ file, about: { kind: 'release' }, ahead: true, signal, show }))
      if (!upload) return
      setDone((await unpack(upload, trust.unsigned, show, signal)).file)
    })
  }
  return (
    <Page title="Import a release bundle" above={[{ to: '/infrastructure/releases', text: 'Releases' }]}>
      <Form onSubmit={(e) => void submit(e)}>
        <FormGroup label="Where the archive is" fieldId="release-place">
          <FormSelect
            id="release-place"
            value={mirrored ? 'mirror' : 'file'}
            isDisabled={stage !== undefined}
            onChange={(_, v) => setMirrored(v === 'mirror')}
          >
            <FormSelectOption value="file" label="On this machine" />
            <FormSelectOption value="mirror" label="On a mirror, from which the director fetches it" />
          </FormSelect>
        </FormGroup>
        {mirrored ? (
          <MirrorFields of={mirror} set={setMirror} busy={stage !== undefined} />
        ) : (
          <FormGroup label="Archive, as directorctl release pack writes it" fieldId="release-file" isRequired>
            <input
              id="release-file"
              type="file"
              disabled={stage !== undefined}
              onChange={(e) => setFile(e.target.files?.[0])}
            />
          </FormGroup>
        )}
        <TrustFields id="release" of={trust} busy={stage !== undefined} />
        {failed !== undefined && <ProblemAlert of={failed} />}
        {stage && <StageBar of={stage} />}
        {done && (
          <Alert isInline variant="success" title="The bundle is on the director." role="status">
            <Facts
              of={[
                ['Name', done.name],
                ['Kubernetes', done.kubernetes],
                ['Size', `${size(done.size)}, ${done.images} images`],
                ['Digest', <Sum key="d">{done.digest}</Sum>],
              ]}
            />
            <Onward document={documentOf(done, trust.unsigned)} />
          </Alert>
        )}
        <ImportActions ready={ready} stage={stage} stop={stop} />
        <Command>
          {`directorctl release import ${quoted(mirrored ? mirror.url || 'URL' : (file?.name ?? 'FILE'))}` +
            (mirrored ? flag('mirror-user', mirror.user) + (mirror.ca && ' --mirror-ca ca.crt') : '') +
            unsignedFlag(trust)}
        </Command>
      </Form>
    </Page>
  )
}
