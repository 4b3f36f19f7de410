import { Button, Spinner } from '@patternfly/react-core'
import { useQuery } from '@tanstack/react-query'
import { useEffect, useRef, useState, type ReactNode } from 'react'
import { useMe } from '../app/me'
import { dropDraft, listen, readDraft, writeDraft, type Draft, type Kept } from '../forms/drafts'
import { Alert } from '../ui/alert'
import { Time } from '../ui/time'

// WithDraft gives its children the draft that was left, once the browser has read it.
export function WithDraft({ name, children }: { name: string; children: (left: Draft | undefined) => ReactNode }) {
  const me = useMe()
  const asked = useQuery({
    queryKey: ['draft', me.user, name],
    queryFn: async () => (await readDraft(me.user, name)) ?? null,
    networkMode: 'always',
    staleTime: Infinity,
    gcTime: 0,
    refetchInterval: false,
    refetchOnMount: 'always',
  })
  if (asked.data === undefined || !asked.isFetchedAfterMount) return <Spinner aria-label="Reading the draft" />
  return children(asked.data ?? undefined)
}

type What = Pick<Draft, 'text' | 'etag'>

export interface Keeping {
  kept: Kept | undefined // where the draft is; undefined before the first change
  theirs: Draft | undefined // what another tab has made of it meanwhile
  write: (what: What) => void
  drop: () => void
  // keep has this tab's text stored over what the other tab has written; otherwise the caller takes that over.
  settle: (mine: What | undefined) => void
}

// useDraft keeps what is written, in the order in which it was written. Of changes that come faster than the browser
// stores them, only the last is stored.
export function useDraft(name: string, left: Draft | undefined): Keeping {
  const me = useMe()
  const [kept, setKept] = useState<Kept>()
  const [theirs, setTheirs] = useState<Draft>()
  const known = useRef(left?.revision)
  const next = useRef<What | 'drop'>(undefined)
  const busy = useRef(false)
  const flush = async () => {
    if (busy.current) return
    busy.current = true
    while (next.current !== undefined) {
      const what = next.current
      next.current = undefined
      if (what === 'drop') {
        known.current = undefined
        await dropDraft(me.user, name)
        setKept(undefined)
        continue
      }
      const draft: Draft = { ...what, key: name, user: me.user, revision: crypto.randomUUID(), at: Date.now() }
      const was = known.current
      known.current = draft.revision
      const done = await writeDraft(draft, was)
      setKept(done.kept)
      if (done.theirs) {
        known.current = was
        setTheirs(done.theirs)
      }
    }
    busy.current = false
  }
  const put = (what: What | 'drop') => {
    next.current = what
    void flush()
  }
  useEffect(
    () =>
      listen((user, key) => {
        if (user !== me.user || key !== name) return
        void readDraft(user, key).then((d) => {
          if (d && d.revision !== known.current && next.current === undefined) setTheirs(d)
        })
      }),
    [me.user, name],
  )
  return {
    kept,
    theirs,
    write: put,
    drop: () => put('drop'),
    settle: (mine) => {
      known.current = theirs?.revision
      setTheirs(undefined)
      if (mine) put(mine)
    },
  }
}

interface DraftNotesProps {
  of: Keeping
  left: Draft | undefined // shown until it is begun again
  mine: What
  again: () => void
  take: (theirs: Draft) => void
}

// DraftNotes say what becomes of the draft, where a person would not expect it.
export function DraftNotes({ of, left, mine, again, take }: DraftNotesProps) {
  return (
    <>
      {left && (
        <Alert
          isInline
          variant="info"
          title="This is the draft that you left here."
          actionLinks={
            <Button variant="link" isInline onClick={again}>
              Start again
            </Button>
          }
        >
          It was last changed <Time at={new Date(left.at).toISOString()} />.
        </Alert>
      )}
      {of.theirs && of.theirs.text !== mine.text && (
        <Alert
          isInline
          variant="warning"
          title="Another tab has changed this draft."
          role="status"
          actionLinks={
            <>
              <Button
                variant="link"
                isInline
                onClick={() => {
                  if (of.theirs) take(of.theirs)
                  of.settle(undefined)
                }}
              >
                Take its text
              </Button>
              <Button variant="link" isInline onClick={() => of.settle(mine)}>
                Keep the text of this tab
              </Button>
            </>
          }
        >
          What you write here is not kept until you have chosen.
        </Alert>
      )}
      {of.kept === 'blocked' && (
        <Alert isInline variant="warning" title="This browser stores nothing." role="status">
          The draft is lost when this tab is closed or loaded again. Download the YAML to keep it.
        </Alert>
      )}
      {of.kept === 'secret' && (
        <Alert isInline variant="warning" title="There seems to be a secret in the text." role="status">
          The draft is kept in this tab alone, and not stored. Documents hold no secrets: set them as credentials.
        </Alert>
      )}
    </>
  )
}
