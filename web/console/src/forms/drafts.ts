// Drafts outlive a reload, the crash of a tab and the end of a session: they are kept in IndexedDB, by user. A browser
// that stores nothing keeps them while the page is open.
export interface Draft {
  key: string // what is written: Network/net1, new cluster
  user: string
  text: string
  etag?: string // version of the document that the draft began with: a later one is not overwritten unseen
  revision: string // another one with each change: a tab does not overwrite what it has not seen
  at: number // of the last change, in milliseconds since 1970
}

// Where a draft is: on the disk; in this tab alone, because the browser stores nothing, or because there seems to be a
// secret in it, which is never stored.
export type Kept = 'stored' | 'blocked' | 'secret'

// lifetime is how long a draft that is not touched is kept.
export const lifetime = 30 * 24 * 3600 * 1000

// mostText is how long a stored draft may be. The director takes no longer documents.
export const mostText = 1 << 20

const secrets = [
  /-----BEGIN [A-Z ]*PRIVATE KEY-----/,
  /[a-z][a-z0-9+.-]*:\/\/[^\s/@:'"]*:[^\s/@'"]+@/i, // a URI with a password
  /^[ \t-]*["']?(?:password|passwd|token|secret|secretKey|privateKey|clientSecret)["']?[ \t]*:[ \t]*["']?[^\s"'#]/im,
]

// secretive reports whether a text seems to hold a secret. Documents have none, and people paste.
export const secretive = (text: string) => secrets.some((s) => s.test(text))

// expired reports whether a draft has not been touched for too long.
export const expired = (d: Pick<Draft, 'at'>, now = Date.now()) => now - d.at > lifetime || d.at > now + 86_400_000

const here = new Map<string, Draft>()
const place = (user: string, key: string) => `${user}\n${key}`

// isDraft reports whether what was stored is a draft of this version of the console.
function isDraft(value: unknown): value is Draft {
  const d = value as Partial<Draft> | undefined
  return (
    typeof d?.key === 'string' &&
    typeof d.user === 'string' &&
    typeof d.text === 'string' &&
    typeof d.revision === 'string' &&
    typeof d.at === 'number'
  )
}

let opened: Promise<IDBDatabase> | undefined

function open(): Promise<IDBDatabase> {
  opened ??= new Promise<IDBDatabase>((resolve, reject) => {
    const request = indexedDB.open('director', 1)
    request.onupgradeneeded = () => request.result.createObjectStore('drafts')
    request.onsuccess = () => {
      const db = request.result
      db.onversionchange = () => {
        db.close() // a later console in another tab wants it
        opened = undefined
      }
      db.onclose = () => {
        opened = undefined
      }
      resolve(db)
    }
    request.onerror = () => reject(request.error ?? new Error('no database'))
    request.onblocked = () => reject(new Error('the database is held by another tab'))
  }).catch((err: unknown) => {
    opened = undefined
    throw err
  })
  return opened
}

// inStore runs one transaction, and is done when the browser says that it is.
async function inStore<T>(mode: IDBTransactionMode, act: (store: IDBObjectStore, done: (v: T) => void) => void) {
  const db = await open()
  return new Promise<T>((resolve, reject) => {
    const tx = db.transaction('drafts', mode)
    let result: T
    tx.oncomplete = () => resolve(result)
    tx.onerror = tx.onabort = () => reject(tx.error ?? new Error('the browser stores nothing'))
    act(tx.objectStore('drafts'), (v) => {
      result = v
    })
  })
}

// readDraft returns the draft, or undefined. It never fails: what cannot be read is not there.
export async function readDraft(user: string, key: string): Promise<Draft | undefined> {
  const at = place(user, key)
  try {
    const found = await inStore<unknown>('readonly', (store, done) => {
      const got = store.get(at)
      got.onsuccess = () => done(got.result)
    })
    if (isDraft(found) && !expired(found)) return found
  } catch {
    // It may be in here.
  }
  return here.get(at)
}

export interface Written {
  kept: Kept
  theirs?: Draft // what another tab has written meanwhile; then nothing was stored
}

// writeDraft keeps the draft if nobody has changed it since the revision that this tab knows: undefined for one that
// it has not seen. What is not stored is kept in the tab.
export async function writeDraft(draft: Draft, known: string | undefined): Promise<Written> {
  const at = place(draft.user, draft.key)
  here.set(at, draft)
  const secret = secretive(draft.text) || draft.text.length > mostText
  try {
    const theirs = await inStore<Draft | undefined>('readwrite', (store, done) => {
      const got = store.get(at)
      got.onsuccess = () => {
        const now: unknown = got.result
        if (isDraft(now) && !expired(now) && now.revision !== known && now.text !== draft.text) return done(now)
        if (secret) store.delete(at)
        else store.put(draft, at)
      }
    })
    if (theirs) return { kept: 'stored', theirs }
    if (secret) return { kept: 'secret' }
    here.delete(at)
    tell(draft.user, draft.key)
    return { kept: 'stored' }
  } catch {
    return { kept: secret ? 'secret' : 'blocked' }
  }
}

// dropDraft forgets a draft. No error if there is none.
export async function dropDraft(user: string, key: string): Promise<void> {
  here.delete(place(user, key))
  try {
    await inStore<void>('readwrite', (store) => void store.delete(place(user, key)))
    tell(user, key)
  } catch {
    // It was in here alone.
  }
}

// listDrafts returns the drafts of a user, the newest first, and forgets those of anyone that have expired. stores
// tells whether the browser stores any.
export async function listDrafts(user: string): Promise<{ drafts: Draft[]; stores: boolean }> {
  const all = new Map<string, Draft>()
  let stores = true
  try {
    await inStore<void>('readwrite', (store) => {
      const cursor = store.openCursor()
      cursor.onsuccess = () => {
        const at = cursor.result
        if (!at) return
        const value: unknown = at.value
        if (!isDraft(value) || expired(value)) at.delete()
        else if (value.user === user) all.set(value.key, value)
        at.continue()
      }
    })
  } catch {
    stores = false
  }
  for (const d of here.values()) if (d.user === user) all.set(d.key, d)
  return { drafts: [...all.values()].sort((a, b) => b.at - a.at), stores }
}

// addressOf is the page that a draft is written on.
export function addressOf(key: string): string {
  if (key === 'new cluster') return '/clusters/new'
  const [first = '', second = '', sha256, kubernetes] = key.split('/')
  if (first !== 'new') return `/apply?kind=${encodeURIComponent(first)}&name=${encodeURIComponent(second)}`
  if (!second) return '/apply'
  const image = sha256 && kubernetes ? `&sha256=${sha256}&kubernetes=${kubernetes}` : ''
  return `/apply?template=${encodeURIComponent(second)}${image}`
}

// Tabs tell each other what they have stored.
const channel = typeof BroadcastChannel === 'undefined' ? undefined : new BroadcastChannel('director.drafts')
const listeners = new Set<(user: string, key: string) => void>()

channel?.addEventListener('message', (e: MessageEvent<unknown>) => {
  const said = e.data as { user?: unknown; key?: unknown } | null
  if (typeof said?.user !== 'string' || typeof said.key !== 'string') return
  for (const l of listeners) l(said.user, said.key)
})

function tell(user: string, key: string): void {
  channel?.postMessage({ user, key })
}

// listen is told of drafts that another tab has changed or dropped, until what it returns is called.
export function listen(heard: (user: string, key: string) => void): () => void {
  listeners.add(heard)
  return () => listeners.delete(heard)
}
