import { Card, CardBody, CardTitle, Content, List, ListItem } from '@patternfly/react-core'
import { useQuery } from '@tanstack/react-query'
import { useEffect, useMemo, useState } from 'react'
import { Link } from 'react-router'
import { client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { problemOf } from '../api/problem'
import { yaml } from '../api/yaml'
import { marksOf, source, type Mark } from '../forms/places'
import { Alert } from '../ui/alert'
import { Diff } from '../ui/diff'
import { WouldPlan } from './wouldPlan'

export type Applied = Schemas['Applied']

// send stores documents, or says what storing them would do.
export function send(text: string, dryRun: boolean, etag?: string): Promise<Applied> {
  return must(
    client.POST('/apply', {
      params: { query: { dry_run: dryRun, source }, header: etag ? { 'If-Match': etag } : {} },
      ...yaml(text),
    }),
  )
}

// useLater is a value a moment after it was last changed.
export function useLater<T>(value: T, after: number): T {
  const [later, setLater] = useState(value)
  useEffect(() => {
    const timer = setTimeout(() => setLater(value), after)
    return () => clearTimeout(timer)
  }, [value, after])
  return later
}

// useDryRun has the director check a text a moment after the last key.
export function useDryRun(text: string) {
  const settled = useLater(text, 500)
  const checked = useQuery({
    queryKey: ['dry run', settled],
    queryFn: () => send(settled, true),
    enabled: settled.trim() !== '',
    retry: false,
    staleTime: 0,
    gcTime: 0,
    refetchInterval: false,
  })
  const marks = useMemo(
    () => (checked.error ? marksOf(list(problemOf(checked.error).errors), settled) : []),
    [checked.error, settled],
  )
  return { checked, marks, settled, current: settled === text && !checked.isFetching }
}

interface OutcomeProps {
  text: string // that was checked
  checked: Applied | undefined
  failed: unknown
  marks: Mark[]
}

// Outcome is what an apply would do, with the plans that would follow, or everything that it would be refused for.
export function Outcome({ text, checked, failed, marks }: OutcomeProps) {
  if (failed != null) {
    const p = problemOf(failed)
    return (
      <Alert isInline variant="danger" title={p.detail} role="status">
        <List>
          {marks.map((m, i) => (
            <ListItem key={i}>
              {m.line > 0 && `Line ${m.line}: `}
              <strong>{m.field}</strong> {m.message}
              {m.hint && ` – ${m.hint}`}
            </ListItem>
          ))}
        </List>
        {marks.length === 0 && p.hint}
      </Alert>
    )
  }
  if (!checked) return null
  return (
    <>
      <Card component="section">
        <CardTitle component="h2">What would change</CardTitle>
        <CardBody className="stack" role="status">
          <Changes of={checked} />
        </CardBody>
      </Card>
      {list(checked.changes).some((c) => c.kind === 'Cluster') && <WouldPlan text={text} />}
    </>
  )
}

export function Changes({ of }: { of: Applied }) {
  return (
    <>
      {list(of.changes).map((c) => (
        <div key={`${c.kind}/${c.name}`}>
          <Content component="p">
            <strong>
              {c.kind}/{c.name}
            </strong>
            : {c.action}
          </Content>
          {c.diff && <Diff of={c.diff} />}
        </div>
      ))}
    </>
  )
}

export function Done({ applied }: { applied: Applied }) {
  const clusters = list(applied.changes).filter((c) => c.kind === 'Cluster')
  return (
    <Alert isInline variant="success" title="Stored." role="status">
      <Changes of={applied} />
      {clusters.length > 0 && <p>Nothing has happened to clusters yet. The next step is a plan:</p>}
      <List isPlain>
        {list(applied.changes).map((c) => (
          <ListItem key={`${c.kind}/${c.name}`}>
            <Link to={c.kind === 'Cluster' ? `/clusters/${c.name}` : `/documents/${c.kind}/${c.name}`}>
              {c.kind} {c.name}
            </Link>
          </ListItem>
        ))}
      </List>
    </Alert>
  )
}
