import { Button, Card, CardBody, CardTitle, Label, Nav, NavItem, NavList, Spinner } from '@patternfly/react-core'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { lazy, Suspense, useEffect, useMemo, useRef, useState } from 'react'
import { Link, type LinkProps } from 'react-router'
import type { Draft } from '../forms/drafts'
import { beginning, type Known } from '../forms/first'
import type { Mark } from '../forms/places'
import { broken, lineOf, partOf } from '../forms/tree'
import { useAct } from '../ui/act'
import { Actions } from '../ui/actions'
import { Alert } from '../ui/alert'
import { Command, quoted } from '../ui/command'
import { LinkButton } from '../ui/linkButton'
import { Answer, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { save } from '../ui/save'
import { useFilters } from '../ui/url'
import { Outcome, send, useDryRun } from './applied'
import { usePlan } from './usePlan'
import { DraftNotes, useDraft, WithDraft } from './draft'
import { knownDocuments } from './known'
import { ClusterStep, GroundStep } from './newClusterSteps'

const Editor = lazy(() => import('../forms/editor'))
const draft = 'new cluster'

const steps = [
  { key: 'provider', title: 'Provider', kinds: ['Provider'] },
  { key: 'network', title: 'Network', kinds: ['Network'] },
  { key: 'image', title: 'Image and release', kinds: ['Image', 'Release'] },
  { key: 'cluster', title: 'Cluster', kinds: ['Cluster'] },
  { key: 'review', title: 'Look at it, and store it', kinds: [] },
] as const

// NewCluster leads from a hypervisor to a cluster. Its only state is the text of the documents.
export default function NewCluster() {
  const asked = useQuery({ queryKey: ['new cluster', 'known'], queryFn: knownDocuments, staleTime: 0, gcTime: 0 })
  return (
    <Page title="New cluster" above={[{ to: '/clusters', text: 'Clusters' }]}>
      <Answer of={asked}>
        {(k) => <WithDraft name={draft}>{(left) => <Wizard known={k} left={left} />}</WithDraft>}
      </Answer>
    </Page>
  )
}

function Wizard({ known, left }: { known: Known; left: Draft | undefined }) {
  const keeping = useDraft(draft, left)
  const filters = useFilters()
  const [from] = useState(() => beginning(known))
  const [text, setText] = useState(left?.text ?? from)
  const [restored, setRestored] = useState(text !== from)
  const { checked, marks, settled, current } = useDryRun(text)
  const first = steps.findIndex((s) => s.kinds.some((k) => k === 'Cluster' || known[k].length === 0))
  const named = steps.findIndex((s) => s.key === filters.get('step'))
  const at = named >= 0 ? named : first
  const step = steps[at] ?? steps[0]
  const edit = (now: string) => {
    setText(now)
    if (now === from) keeping.drop()
    else keeping.write({ text: now })
  }
  // A step begins at its beginning, for the eyes and for the Tab key.
  const form = useRef<HTMLDivElement>(null)
  const gone = useRef(step)
  useEffect(() => {
    if (gone.current === step) return
    gone.current = step
    form.current?.focus({ preventScroll: true })
    form.current?.parentElement?.parentElement?.scrollIntoView({ block: 'start' })
  }, [step])
  const error = broken(text)
  const of = (kind: string) => marks.filter((m) => m.document.startsWith(`${kind}/`))
  const next = steps[at + 1]
  // The text is scrolled to the document of a step when one goes there, and not while it is edited.
  const shown = useMemo(() => {
    const own = step.kinds.map((k) => partOf(text, k)).find((p) => p !== undefined)
    return own && Math.max(1, lineOf(text, own.kind, own.name, []) - 1) // with the comment above it
  }, [step])
  return (
    <div className="stack">
      <DraftNotes
        of={keeping}
        left={restored ? left : undefined}
        mine={{ text }}
        again={() => {
          edit(from)
          setRestored(false)
        }}
        take={(d) => setText(d.text)}
      />
      <Steps at={at} text={text} marks={marks} />
      <div className="split">
        <div className="stack step" ref={form} tabIndex={-1}>
          {error && (
            <Alert isInline variant="danger" title={`Line ${error.line} is no YAML: ${error.message}`}>
              Form fields are back when it can be read.
            </Alert>
          )}
          {!error &&
            step.kinds.map((kind) =>
              kind === 'Cluster' ? (
                <ClusterStep key={kind} text={text} edit={edit} known={known} marks={of(kind)} />
              ) : (
                <GroundStep key={kind} kind={kind} text={text} edit={edit} known={known} marks={of(kind)} />
              ),
            )}
          {step.key === 'review' && (
            <Review
              text={text}
              ready={current && checked.data !== undefined}
              drop={keeping.drop}
              outcome={<Outcome text={settled} checked={checked.data} failed={checked.error} marks={marks} />}
            />
          )}
          <Actions>
            {next && (
              <LinkButton variant={step.key === 'cluster' ? 'primary' : 'secondary'} to={`?step=${next.key}`}>
                Next: {next.title}
              </LinkButton>
            )}
            {at > 0 && (
              <LinkButton variant="link" to={`?step=${steps[at - 1]?.key ?? ''}`}>
                Back
              </LinkButton>
            )}
          </Actions>
        </div>
        <div className="stack">
          <Suspense fallback={<Spinner aria-label="Loading the editor" />}>
            <Editor text={text} onChange={edit} marks={marks} label="Documents" line={shown} />
          </Suspense>
          <p className="hint">The form writes this text, and shows what you write here.</p>
        </div>
      </div>
    </div>
  )
}

function Steps({ at, text, marks }: { at: number; text: string; marks: Mark[] }) {
  return (
    <Nav aria-label="Steps" variant="horizontal-subnav" className="tabs">
      <NavList>
        {steps.map((s, i) => {
          const wrong = marks.filter((m) => s.kinds.some((k) => m.document.startsWith(`${k}/`))).length
          const here = s.kinds.some((k) => partOf(text, k))
          return (
            <NavItem key={s.key} isActive={i === at}>
              <StepLink to={`?step=${s.key}`}>
                {i + 1}. {s.title}{' '}
                {wrong > 0 && (
                  <Label isCompact color="red">
                    {wrong} to fix
                  </Label>
                )}
                {wrong === 0 && !here && s.kinds.length > 0 && (
                  <Label isCompact color="green">
                    is there
                  </Label>
                )}
              </StepLink>
            </NavItem>
          )
        })}
      </NavList>
    </Nav>
  )
}

// StepLink is said to be the current step, where NavItem says that it is the current page.
function StepLink({ 'aria-current': current, ...of }: LinkProps) {
  return <Link {...of} aria-current={current ? 'step' : undefined} />
}

// Review stores the documents, and then makes the plan of the cluster.
interface ReviewProps {
  text: string
  ready: boolean
  outcome: React.ReactNode
  drop: () => void // the draft
}

function Review({ text, ready, outcome, drop }: ReviewProps) {
  const queries = useQueryClient()
  const name = partOf(text, 'Cluster')?.name ?? ''
  const plan = usePlan(name)
  const { busy, failed, act } = useAct()
  const [sent, setSent] = useState<string>() // what was stored: it may be changed when no plan could be made of it
  const stored = sent === text
  const go = () =>
    act(async () => {
      if (!stored) await send(text, false)
      setSent(text)
      drop()
      void queries.invalidateQueries({ predicate: (q) => q.queryKey[0] === 'get' })
      await plan({})
    })
  return (
    <Card component="section">
      <CardTitle component="h2">Store the documents, and make the plan</CardTitle>
      <CardBody className="stack">
        {outcome}
        {stored && <Alert isInline variant="success" title="The documents are stored." role="status" />}
        {failed !== undefined && <ProblemAlert of={failed} />}
        <p className="hint">No VM is made before you have read the plan and started it.</p>
        <Actions>
          <Button
            isDisabled={!busy && (!(ready || stored) || name === '')}
            isAriaDisabled={busy} // it keeps the focus
            isLoading={busy}
            onClick={() => void go()}
          >
            Store and plan
          </Button>
          <Button variant="secondary" onClick={() => save('documents.yaml', text, 'application/yaml')}>
            Download YAML
          </Button>
        </Actions>
        <Command>{`directorctl apply -f documents.yaml && directorctl plan ${quoted(name)}`}</Command>
      </CardBody>
    </Card>
  )
}
