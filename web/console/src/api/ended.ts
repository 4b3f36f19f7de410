// The end of the session, which any answer of the API can tell.
const listeners = new Set<() => void>()

export function sessionEnded(): void {
  for (const listener of listeners) listener()
}

export function onSessionEnded(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}
