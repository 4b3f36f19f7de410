// One stream of events for all tabs of a browser: the tab that holds the lock reads it and tells the others.
import { useSyncExternalStore } from 'react'
import type { Schemas } from './client'

export type StreamEvent = Schemas['StreamEvent']

type Message = { event: StreamEvent } | { gap: true } | { live: boolean }

// Stream says whether what is shown is live, and since when it is not.
export interface Liveness {
  live: boolean
  since: Date
}

const listeners = new Set<(event: StreamEvent | null) => void>()
const watchers = new Set<() => void>()
let liveness: Liveness = { live: false, since: new Date() }

// onEvent calls the listener for each event; null means that some were missed, and all must be asked for again.
export function onEvent(listener: (event: StreamEvent | null) => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}

export function useLiveness(): Liveness {
  return useSyncExternalStore(
    (changed) => {
      watchers.add(changed)
      return () => watchers.delete(changed)
    },
    () => liveness,
  )
}

function take(message: Message): void {
  if ('live' in message) {
    if (message.live !== liveness.live) {
      liveness = { live: message.live, since: new Date() }
      for (const changed of watchers) changed()
    }
    return
  }
  for (const listener of listeners) listener('event' in message ? message.event : null)
}

// follow reads the stream until the signal. A browser without locks reads one stream in each tab.
export function follow(signal: AbortSignal): void {
  const channel = 'BroadcastChannel' in globalThis ? new BroadcastChannel('director-events') : undefined
  let leads = false
  const tell = (message: Message) => {
    take(message)
    channel?.postMessage(message)
  }
  if (channel) {
    channel.onmessage = (e: MessageEvent<Message | { hello: true }>) => {
      if (!('hello' in e.data)) take(e.data)
      else if (leads) channel.postMessage({ live: liveness.live })
    }
    channel.postMessage({ hello: true })
  }
  signal.addEventListener('abort', () => channel?.close())
  const lead = () =>
    new Promise<void>((resolve) => {
      leads = true
      const close = read(tell)
      if (signal.aborted) close()
      signal.addEventListener('abort', () => {
        close()
        take({ live: false })
        resolve()
      })
    })
  if (!navigator.locks) {
    void lead()
    return
  }
  navigator.locks.request('director-events', { signal }, lead).catch((err: unknown) => {
    if (!signal.aborted) throw err
  })
}

const longest = 4000 // ms: a director that is there again is heard within 5 s, also behind a balancer

// read reads the stream, and takes it up again where it was cut. It returns what ends it.
export function read(tell: (message: Message) => void, open = (url: string) => new EventSource(url)): () => void {
  let source: EventSource | undefined
  let timer: ReturnType<typeof setTimeout> | undefined
  let last = ''
  let pause = 1000
  const connect = () => {
    source = open('/api/v1/events' + (last === '' ? '?tail=1' : `?after=${last}`))
    source.onopen = () => {
      pause = 1000
      tell({ live: true })
      if (last === '') tell({ gap: true }) // what happened before the first event is not known
    }
    source.addEventListener('event', (e: MessageEvent<string>) => {
      last = e.lastEventId
      tell({ event: JSON.parse(e.data) as StreamEvent })
    })
    source.addEventListener('gap', (e: MessageEvent<string>) => {
      last = e.lastEventId
      tell({ gap: true })
    })
    source.onerror = () => {
      tell({ live: false })
      if (source?.readyState !== EventSource.CLOSED) return // the browser connects again, and names the last event
      timer = setTimeout(connect, pause)
      pause = Math.min(pause * 2, longest)
    }
  }
  connect()
  return () => {
    clearTimeout(timer)
    source?.close()
  }
}
