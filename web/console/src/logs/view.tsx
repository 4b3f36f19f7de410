import { Button, SearchInput, Switch, TextInput, Toolbar, ToolbarContent, ToolbarItem } from '@patternfly/react-core'
import { useEffect, useLayoutEffect, useRef, useState, type KeyboardEvent } from 'react'
import { useLocation, useNavigate } from 'react-router'
import { ProblemAlert } from '../ui/problem'
import { Nothing } from '../ui/page'
import { holds, useFailures, useSearch, useWindow, type Hits, type Place, type Source } from './feed'

interface LogProps extends Source {
  grows: boolean // the attempt runs
}

export function logURL({ plan, step, attempt }: Source): string {
  return `/api/v1/plans/${encodeURIComponent(plan)}/log?step=${encodeURIComponent(step)}&attempt=${attempt}`
}

// Log shows a window of the log: at the line that the URL names, at the last that failed, or at the end as it grows.
export function Log(props: LogProps) {
  const { hash } = useLocation()
  const navigate = useNavigate()
  const named = /^#L(\d{1,12})$/.exec(hash)
  const here = named ? Number(named[1]) : undefined
  const [follows, setFollows] = useState(props.grows && here === undefined)
  const failures = useFailures(props, props.grows)
  const [place, setPlace] = useState<Place | undefined>(follows ? 'end' : here)
  const { window: log, problem } = useWindow(props, place)
  const box = useRef<HTMLOListElement>(null)
  const anchor = useRef<{ line: number; top: number }>(undefined)

  // A line that is shown already needs no other window, unless this one moves with the end.
  const move = (to: Place) => setPlace((from) => (to !== 'end' && from !== 'end' && log && holds(log, to) ? from : to))
  const goTo = (n: number) => {
    setFollows(false)
    move(n)
    void navigate({ hash: `#L${n}` }, { replace: true, preventScrollReset: true })
  }
  // The failing line is what a reader came for.
  const last = failures.lines.at(-1)
  useEffect(() => {
    if (place !== undefined || !failures.known) return
    if (here === undefined && last !== undefined) goTo(last)
    else setPlace(here ?? 'end')
  })
  useEffect(() => {
    if (here !== undefined && place !== undefined && !follows) move(here)
  }, [here])

  // slide shows the lines before or behind the window, and keeps the line at its edge where it is on the screen.
  const slide = (later: boolean) => {
    if (!log || !box.current) return
    const edge = later ? log.lines.at(-1)?.n : log.lines[0]?.n
    const line = box.current.querySelector<HTMLElement>(`#L${edge}`)
    if (edge !== undefined && line) anchor.current = { line: edge, top: line.offsetTop - box.current.scrollTop }
    setFollows(false)
    setPlace(later ? log.next : Math.max(1, log.first))
  }
  const scrolled = () => {
    if (!log || !box.current || follows || anchor.current) return
    const { scrollTop, scrollHeight, clientHeight } = box.current
    if (scrollTop === 0 && log.first > 1) slide(false)
    else if (scrollTop + clientHeight >= scrollHeight - 1 && log.next <= log.total) slide(true)
  }
  useLayoutEffect(() => {
    const list = box.current
    if (!list || !log) return
    const kept = anchor.current && list.querySelector<HTMLElement>(`#L${anchor.current.line}`)
    if (follows) list.scrollTop = list.scrollHeight
    else if (anchor.current && kept) list.scrollTop = kept.offsetTop - anchor.current.top
    else list.querySelector('.here')?.scrollIntoView?.({ block: 'center' })
    anchor.current = undefined
  }, [follows, here, log])

  return (
    <section aria-label="Log" className="stack">
      {problem !== undefined && <ProblemAlert of={problem} />}
      <Toolbar>
        <ToolbarContent>
          <ToolbarItem>
            <Search of={props} goTo={goTo} />
          </ToolbarItem>
          <ToolbarItem>
            <GoToLine last={log?.total ?? 1} goTo={goTo} />
          </ToolbarItem>
          <ToolbarItem>
            <Switch
              label="Follow the end"
              isChecked={follows}
              onChange={(_, on) => {
                setFollows(on)
                if (on) move('end')
              }}
            />
          </ToolbarItem>
          <ToolbarItem>
            <Button variant="secondary" isDisabled={follows || !log || log.first <= 1} onClick={() => slide(false)}>
              Earlier
            </Button>
          </ToolbarItem>
          <ToolbarItem>
            <Button
              variant="secondary"
              isDisabled={follows || !log || log.next > log.total}
              onClick={() => slide(true)}
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
      {failures.lines.length > 0 && (
        <p>
          Lines that failed:{' '}
          {failures.lines.slice(-10).map((n) => (
            <a
              key={n}
              href={`#L${n}`}
              onClick={(e) => {
                e.preventDefault()
                goTo(n)
              }}
              className="mono"
            >
              {n}{' '}
            </a>
          ))}
        </p>
      )}
      {log?.lines.length === 0 && (
        <Nothing title={props.grows ? 'It has written nothing yet.' : 'It has written nothing.'} />
      )}
      {log && log.lines.length > 0 && (
        <ol
          ref={box}
          className="log"
          tabIndex={0}
          onScroll={scrolled}
          aria-label={`Lines ${log.first} to ${log.next - 1} of ${log.total}`}
        >
          {log.lines.map((l) => (
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

// Search looks through the whole log, and walks from hit to hit.
function Search({ of, goTo }: { of: Source; goTo: (n: number) => void }) {
  const [text, setText] = useState('')
  const [hit, setHit] = useState(0)
  const { extend, ...hits } = useSearch(of, text)
  const walk = (by: number) => {
    const count = hits.lines.length
    const next = hit + by
    if (count === 0 || (next >= count && hits.busy)) return
    if (next >= count && hits.more) {
      extend()
      return
    }
    const at = (next + count) % count
    setHit(at)
    goTo(hits.lines[at] ?? 1)
  }
  return (
    <>
      <SearchInput
        aria-label="Search in the log"
        placeholder="Search"
        value={text}
        resultsCount={text === '' ? undefined : countOf(hits, hit)}
        onChange={(_, v) => {
          setText(v.slice(0, 200))
          setHit(0)
        }}
        onClear={() => setText('')}
        onNextClick={() => walk(1)}
        onPreviousClick={() => walk(-1)}
        onSearch={() => walk(0)}
      />
      {hits.problem !== undefined && <ProblemAlert of={hits.problem} />}
    </>
  )
}

// countOf says which hit is shown, and of how many.
export function countOf({ lines, busy, more }: Hits, hit: number): string {
  if (lines.length === 0) return busy ? '...' : '0'
  return `${hit + 1} / ${lines.length}${busy || more ? '+' : ''}`
}

function GoToLine({ last, goTo }: { last: number; goTo: (n: number) => void }) {
  const [text, setText] = useState('')
  const go = (e: KeyboardEvent) => {
    const n = Number(text)
    if (e.key !== 'Enter' || !Number.isInteger(n) || n < 1) return
    goTo(Math.min(n, Math.max(last, 1)))
    setText('')
  }
  return (
    <TextInput
      aria-label="Go to line"
      placeholder="Go to line"
      inputMode="numeric"
      value={text}
      onChange={(_, v) => setText(v.replaceAll(/\D/g, '').slice(0, 12))}
      onKeyDown={go}
    />
  )
}
