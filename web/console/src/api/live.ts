// What is shown is asked for again when an event says that it has changed: at once, and then at most twice a second.
import type { Query, QueryClient } from '@tanstack/react-query'
import { onEvent, type StreamEvent } from './stream'

// The paths that answer something else when an event of the kind happens. {name} is what the event is about. That a
// plan was made is told of its cluster.
const ofClusters = [
  '/clusters',
  '/clusters/{name}',
  '/clusters/{name}/nodes',
  '/clusters/{name}/health',
  '/plans',
  '/summary',
  '/documents/{kind}',
  '/documents/{kind}/{name}',
]
const affected: Record<string, string[]> = {
  Plan: [
    ...ofClusters,
    '/plans/{id}',
    '/plans/{id}/steps',
    '/plans/{id}/matrix',
    '/campaigns',
    '/campaigns/{id}',
    '/hook-deliveries',
    '/waits',
  ],
  Campaign: ['/campaigns', '/campaigns/{id}'],
  Cluster: ofClusters,
  Node: ['/nodes', '/summary', '/clusters/{name}/nodes', '/clusters/{name}/health'],
  Schedule: ['/schedules', '/schedules/{name}'],
  User: ['/users', '/users/{name}', '/me'],
}
const documents = ['/documents/{kind}', '/documents/{kind}/{name}', '/images', '/capacity']

interface Init {
  params?: { path?: Record<string, string> }
}

// touches reports whether the event changes the answer to the query.
export function touches(event: StreamEvent, key: readonly unknown[]): boolean {
  const [, path, init] = key as [string, string, Init | undefined]
  if (!(affected[event.kind] ?? documents).includes(path)) return false
  const named = init?.params?.path
  if (path.startsWith('/plans/{id}')) return named?.id === event.name
  if (path === '/campaigns/{id}') return event.kind !== 'Campaign' || named?.id === event.name
  if (path.startsWith('/clusters/{name}')) return named?.name === (event.cluster ?? event.name)
  return true
}

// keepFresh asks again for what events have changed. It returns what ends it.
export function keepFresh(queries: QueryClient, every = 500): () => void {
  let pending: (StreamEvent | null)[] = []
  let again = new Set<Query>() // something has changed while they were asked
  let timer: ReturnType<typeof setTimeout> | undefined
  let last = -Infinity
  const refresh = () => {
    const events = pending
    pending = []
    last = performance.now()
    timer = undefined
    const changed = (q: Query) => again.has(q) || events.some((e) => e === null || touches(e, q.queryKey))
    const stale = queries.getQueryCache().getAll().filter(changed)
    // An answer under way may be from before the event. It is not thrown away, or a slow one would never be seen; it
    // alone is asked for once more when it is there.
    again = new Set(stale.filter((q) => q.state.fetchStatus === 'fetching'))
    const idle = new Set(stale.filter((q) => !again.has(q)))
    void queries.invalidateQueries({ predicate: (q) => idle.has(q) }, { cancelRefetch: false })
    if (again.size > 0) timer = setTimeout(refresh, every)
  }
  const off = onEvent((event) => {
    pending.push(event)
    timer ??= setTimeout(refresh, Math.max(0, last + every - performance.now()))
  })
  return () => {
    off()
    clearTimeout(timer)
  }
}
