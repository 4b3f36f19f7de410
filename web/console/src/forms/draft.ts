// Drafts outlive a reload and a log-out. A browser that stores nothing keeps them while the page is open.
const prefix = 'director.draft.'
const here = new Map<string, string>()

export interface Draft {
  text: string
  etag?: string // version of the document that the draft began with: a later one is not overwritten unseen
}

export function readDraft(key: string): Draft | undefined {
  let stored = here.get(key)
  try {
    stored = localStorage.getItem(prefix + key) ?? stored
  } catch {
    // It is in here.
  }
  if (stored === undefined) return undefined
  try {
    const draft = JSON.parse(stored) as Partial<Draft>
    return typeof draft.text === 'string' ? { text: draft.text, etag: draft.etag } : undefined
  } catch {
    return undefined
  }
}

export function writeDraft(key: string, draft: Draft | undefined): void {
  const stored = draft && JSON.stringify(draft)
  if (stored === undefined) here.delete(key)
  else here.set(key, stored)
  try {
    if (stored === undefined) localStorage.removeItem(prefix + key)
    else localStorage.setItem(prefix + key, stored)
  } catch {
    // It is in here.
  }
}
