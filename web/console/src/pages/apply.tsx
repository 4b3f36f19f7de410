import { Button, Card, CardBody, CardTitle, Content, Spinner } from '@patternfly/react-core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { lazy, Suspense, useState } from 'react'
import { useSearchParams } from 'react-router'
import { api, json } from '../api/client'
import { problemOf } from '../api/problem'
import type { Draft } from '../forms/drafts'
import { kinds, type Kind } from '../forms/kinds'
import { imageDocument, releaseDocument, templates } from '../forms/templates'
import { Actions } from '../ui/actions'
import { Beside } from '../ui/beside'
import { Command } from '../ui/command'
import { Answer, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { save } from '../ui/save'
import { Time } from '../ui/time'
import { Done, Outcome, send, useDryRun, type Applied } from './applied'
import { DocumentForm, hasForm } from './documentForm'
import { readDocument } from './documentText'
import { DraftNotes, useDraft, WithDraft } from './draft'

const Editor = lazy(() => import('../forms/editor'))

// Apply states what should be: a new document, or a change of one that is there.
export default function Apply() {
  const [params] = useSearchParams()
  const kind = kinds.find((k) => k === params.get('kind'))
  const name = params.get('name') ?? ''
  const template = kinds.find((k) => k === params.get('template'))
  if (kind && name) return <Existing key={`${kind}/${name}`} kind={kind} name={name} />
  const sha256 = params.get('sha256') ?? ''
  const kubernetes = params.get('kubernetes') ?? ''
  if (template === 'Image' && /^[0-9a-f]{64}$/.test(sha256) && /^v?[0-9.]+$/.test(kubernetes)) {
    return (
      <Form
        key={sha256}
        title="New Image"
        draft={`new/Image/${sha256}/${kubernetes}`}
        from={imageDocument(sha256, kubernetes)}
      />
    )
  }
  const digest = params.get('digest') ?? ''
  if (template === 'Release' && /^[0-9a-f]{64}$/.test(digest) && /^v[0-9.]+$/.test(kubernetes)) {
    return (
      <Form
        key={digest}
        title="New Release"
        draft={`new/Release/${digest}`}
        from={releaseDocument({ name, digest, kubernetes, unsigned: params.get('unsigned') ?? '' })}
      />
    )
  }
  return (
    <Form
      key={template}
      title={template ? `New ${template}` : 'New documents'}
      draft={`new/${template ?? ''}`}
      from={template ? templates[template] : ''}
      kind={template}
    />
  )
}

function Existing({ kind, name }: { kind: Kind; name: string }) {
  const asked = useQuery({
    queryKey: ['edit', kind, name],
    queryFn: () => readDocument(kind, name),
    staleTime: Infinity,
    gcTime: 0,
  })
  return (
    <Answer of={asked}>
      {(doc) => (
        <Form
          title={`Edit ${name}`}
          above={[
            { to: `/documents/${kind}`, text: kind },
            { to: `/documents/${kind}/${name}`, text: name },
          ]}
          draft={`${kind}/${name}`}
          from={doc.text}
          etag={doc.etag}
          of={{ kind, name }}
          kind={kind}
        />
      )}
    </Answer>
  )
}

interface FormProps {
  title: string
  draft: string
  from: string // the text that it begins with
  above?: { to: string; text: string }[]
  etag?: string // of the document that is changed
  of?: { kind: Kind; name: string }
  kind?: Kind // of the document that there is a form for
}

function Form(props: FormProps) {
  return <WithDraft name={props.draft}>{(left) => <FormWith {...props} left={left} />}</WithDraft>
}

function FormWith({ title, draft, from, above, etag: began, of, kind, left }: FormProps & { left: Draft | undefined }) {
  const queries = useQueryClient()
  const keeping = useDraft(draft, left)
  const [text, setText] = useState(left?.text ?? from)
  const [etag, setEtag] = useState(left ? left.etag : began)
  const [restored, setRestored] = useState(text !== from)
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState<unknown>()
  const [done, setDone] = useState<Applied>()
  const [theirs, setTheirs] = useState<{ text: string; etag: string }>()
  const { checked, marks, settled, current } = useDryRun(text)
  const edit = (now: string, version = etag) => {
    setText(now)
    setEtag(version)
    setDone(undefined)
    if (now === from) keeping.drop()
    else keeping.write({ text: now, etag: version })
  }
  const startAgain = () => {
    edit(from, began)
    setRestored(false)
  }
  const apply = async () => {
    setBusy(true)
    setFailed(undefined)
    try {
      setDone(await send(text, false, etag))
      keeping.drop()
      setTheirs(undefined)
      if (of) setEtag((await readDocument(of.kind, of.name)).etag)
      void queries.invalidateQueries({ predicate: (q) => q.queryKey[0] === 'get' })
    } catch (err) {
      const moved = problemOf(err).status === 412
      if (moved && of) setTheirs(await readDocument(of.kind, of.name).catch(() => undefined))
      setFailed(err)
    } finally {
      setBusy(false)
    }
  }
  return (
    <Page title={title} above={above}>
      <div className="stack">
        <DraftNotes
          of={keeping}
          left={restored ? left : undefined}
          mine={{ text, etag }}
          again={startAgain}
          take={(d) => {
            setText(d.text)
            setEtag(d.etag)
          }}
        />
        <div className={hasForm(kind) ? 'split' : undefined}>
          {kind && hasForm(kind) && <DocumentForm kind={kind} text={text} marks={marks} edit={(now) => edit(now)} />}
          <div className="stack">
            <Suspense fallback={<Spinner aria-label="Loading the editor" />}>
              <Editor text={text} onChange={edit} marks={marks} label={title} />
            </Suspense>
          </div>
        </div>
        {theirs && of && (
          <Theirs
            of={of}
            mine={text}
            theirs={theirs.text}
            choose={(chosen) => {
              edit(chosen, theirs.etag)
              setTheirs(undefined)
              setFailed(undefined)
            }}
          />
        )}
        {failed !== undefined && !theirs && <ProblemAlert of={failed} />}
        {done ? (
          <Done applied={done} />
        ) : (
          <>
            <Outcome text={settled} checked={checked.data} failed={checked.error} marks={marks} />
            <Actions>
              <Button
                onClick={() => void apply()}
                isLoading={busy}
                isDisabled={busy || !current || checked.data === undefined}
              >
                Apply
              </Button>
              <Button variant="secondary" onClick={() => save('documents.yaml', text, 'application/yaml')}>
                Download YAML
              </Button>
            </Actions>
            <Command>directorctl apply -f documents.yaml</Command>
          </>
        )}
      </div>
    </Page>
  )
}

interface TheirsProps {
  of: { kind: Kind; name: string }
  mine: string
  theirs: string
  choose: (text: string) => void
}

// Theirs shows what someone else has stored meanwhile next to what one has written. Nothing is merged unseen.
function Theirs({ of, mine, theirs, choose }: TheirsProps) {
  const asked = api.useQuery('get', '/documents/{kind}/{name}', { params: { path: of } })
  const stored = asked.data ? json(asked.data) : undefined
  return (
    <Card component="section">
      <CardTitle component="h2">Someone has changed it meanwhile</CardTitle>
      <CardBody className="stack">
        {stored && (
          <Content component="p">
            {stored.updated_by} has stored it, <Time at={stored.updated_at} />.
          </Content>
        )}
        <Beside left={mine} right={theirs} titles={['Your text', 'What is stored now']} />
        <Content component="p" className="hint">
          Your text stays in the editor above: take over there what you want to keep of the stored one.
        </Content>
        <Actions>
          <Button variant="secondary" onClick={() => choose(mine)}>
            Keep mine, to be stored over it
          </Button>
          <Button variant="secondary" onClick={() => choose(theirs)}>
            Go on with the stored text
          </Button>
        </Actions>
      </CardBody>
    </Card>
  )
}
