import { Button, SearchInput, Switch, Toolbar, ToolbarContent, ToolbarItem } from '@patternfly/react-core'
import { useEffect, useMemo, useRef, useState } from 'react'
import { useLocation, useNavigate } from 'react-router'
import { ProblemAlert } from '../ui/problem'
import { Nothing } from '../ui/page'
import { LogReader, search, type Snapshot } from './reader'
import { Alert } from '../ui/alert'

const windowSize = 500
const nothing: Snapshot = { lines: [], bad: [], total: 0, bytes: 0 }

interface LogProps {
  plan: string
  step: string
  attempt: number
  grows: boolean // the attempt runs
}

export function logURL({ plan, step, attempt }: Pick<LogProps, 'plan' | 'step' | 'attempt'>): string {
  return `/api/v1/plans/${encodeURIComponent(plan)}/log?step=${encodeURIComponent(step)}&attempt=${attempt}`
}

// useLog reads the log, every second while it grows.
function useLog({ plan, step, attempt, grows }: LogProps): { log: Snapshot; failed: unknown; done: boolean } {
  const [state, setState] = useState({ log: nothing, failed: undefined as unknown, done: false })
  const url = logURL({ plan, step, attempt })
  const reader = useMemo(() => new LogReader(url), [url])
  useEffect(() => {
    const abort = new AbortController()
    let timer: ReturnType<typeof setTimeout> | undefined
    let showing: ReturnType<typeof setTimeout> | undefined
    const show = () => {
      showing ??= setTimeout(() => {
        showing = undefined
        setState({ log: reader.snapshot(windowSize), failed: undefined, done: false })
      }, 250)
    }
    const read = async () => {
      let failed: unknown
      try {
        await reader.more(abort.signal, show)
      } catch (err) {
        failed = err
      }
      if (abort.signal.aborted) return
      clearTimeout(showing)
      showing = undefined
      setState({ log: reader.snapshot(), failed, done: true })
      if (grows || failed !== undefined) timer = setTimeout(() => void read(), failed === undefined ? 1000 : 5000)
    }
    void read()
    return () => {
      abort.abort()
      clearTimeout(timer)
      clearTimeout(showing)
    }
  }, [reader, grows])
  return state
}

// Log shows a window of the log: at the line that the URL names, at the first that failed, or at the end as it grows.
export function Log(props: LogProps) {
  const { log, failed, done } = useLog(props)
  const { hash } = useLocation()
  const navigate = useNavigate()
  const named = /^#L(\d+)$/.exec(hash)
  const here = named ? Number(named[1]) : undefined
  const [follows, setFollows] = useState(props.grows && here === undefined)
  const [text, setText] = useState('')
  const [hit, setHit] = useState(0)
  const box = useRef<HTMLOListElement>(null)
  const hits = useMemo(() => search(log.lines, text), [log.lines, text])
  const first = log.lines[0]?.n ?? 1
  const count = log.lines.length
  const at = log.lines.findIndex((l) => l.n >= (here ?? first))
  const start = follows || at < 0 ? Math.max(0, count - windowSize) : clamp(at - windowSize / 2, count)
  const shown = log.lines.slice(start, start + windowSize)

  const goTo = (n: number) => {
    setFollows(false)
    void navigate({ hash: `#L${n}` }, { replace: true, preventScrollReset: true })
  }
  const walk = (by: number) => {
    if (hits.length === 0) return
    const next = (hit + by + hits.length) % hits.length
    setHit(next)
    const line = log.lines[hits[next] ?? 0]
    if (line) goTo(line.n)
  }
  // The failing line is what a reader came for.
  const [opened, setOpened] = useState(false)
  useEffect(() => {
    if (opened || !done) return
    setOpened(true)
    const bad = log.bad.at(-1)
    if (here === undefined && !props.grows && bad) goTo(bad.n)
  })
  useEffect(() => {
    if (!box.current) return
    if (follows) box.current.scrollTop = box.current.scrollHeight
    else box.current.querySelector('.here')?.scrollIntoView?.({ block: 'center' })
  }, [follows, here, shown.length, log.total, done])

  return (
    <section aria-label="Log" className="stack">
      {failed !== undefined && <ProblemAlert of={failed} />}
      <Toolbar>
        <ToolbarContent>
          <ToolbarItem>
            <SearchInput
              aria-label="Search in the log"
              placeholder="Search"
              value={text}
              resultsCount={
                text === '' ? undefined : hits.length === 0 ? '0' : `${Math.min(hit + 1, hits.length)} / ${hits.length}`
              }
              onChange={(_, v) => {
                setText(v)
                setHit(0)
              }}
              onClear={() => setText('')}
              onNextClick={() => walk(1)}
              onPreviousClick={() => walk(-1)}
              onSearch={() => walk(0)}
            />
          </ToolbarItem>
          <ToolbarItem>
            <Switch label="Follow the end" isChecked={follows} onChange={(_, on) => setFollows(on)} />
          </ToolbarItem>
          <ToolbarItem>
            <Button
              variant="secondary"
              isDisabled={follows || start === 0}
              onClick={() => goTo(log.lines[Math.max(0, start - windowSize / 2)]?.n ?? first)}
            >
              Earlier
            </Button>
          </ToolbarItem>
          <ToolbarItem>
            <Button
              variant="secondary"
              isDisabled={follows || start + windowSize >= count}
              onClick={() => goTo(log.lines[Math.min(count - 1, start + windowSize)]?.n ?? first)}
            >
              Later
            </Button>
          </ToolbarItem>
          <ToolbarItem>
            <Button variant="link" component="a" href={logURL(props)} download={`${props.plan}-${props.attempt}.jsonl`}>
              Download
            </Button>
          </ToolbarItem>
        </ToolbarContent>
      </Toolbar>
      {done && log.total - count > 1000 && (
        <Alert
          isInline
          isPlain
          variant="info"
          title={`Only the last ${count} of ${log.total} lines are kept in this page. Download has all.`}
        />
      )}
      {log.bad.length > 0 && (
        <p>
          Lines that failed:{' '}
          {log.bad.slice(0, 10).map((l) => (
            <a
              key={l.n}
              href={`#L${l.n}`}
              onClick={(e) => {
                e.preventDefault()
                goTo(l.n)
              }}
              className="mono"
            >
              {l.n}{' '}
            </a>
          ))}
        </p>
      )}
      {count === 0 && done && (
        <Nothing title={props.grows ? 'It has written nothing yet.' : 'It has written nothing.'} />
      )}
      {count > 0 && (
        <ol
          ref={box}
          className="log"
          tabIndex={0}
          aria-label={`Lines ${shown[0]?.n} to ${shown.at(-1)?.n} of ${log.total}`}
        >
          {shown.map((l) => (
            <li
              key={l.n}
              id={`L${l.n}`}
              className={[l.tone === 'plain' ? '' : l.tone, l.n === here ? 'here' : ''].join(' ').trim()}
            >
              <a
                href={`#L${l.n}`}
                aria-label={`Line ${l.n}`}
                onClick={(e) => {
                  e.preventDefault()
                  goTo(l.n)
                }}
              >
                {l.n}
              </a>
              <span className="text">
                {l.at && `${l.at}  `}
                {l.text}
              </span>
            </li>
          ))}
        </ol>
      )}
    </section>
  )
}

function clamp(wanted: number, count: number): number {
  return Math.max(0, Math.min(Math.floor(wanted), count - windowSize))
}
