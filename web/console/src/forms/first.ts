// The documents of a first cluster as one text: what the director has already is named, and what it has not is
// described.
import type { Kind } from './kinds'
import { templates, vsphereTemplate } from './templates'
import { append, get, partOf, remove, set, type Path } from './tree'

export type Ground = 'Provider' | 'Network' | 'Image' | 'Release' // what a cluster stands on
export const grounds: Ground[] = ['Provider', 'Network', 'Image', 'Release']

// Which fields name a document of the kind.
const references: Record<Ground, [kind: Kind, path: Path][]> = {
  Provider: [
    ['Network', ['spec', 'provider']],
    ['Cluster', ['spec', 'provider']],
  ],
  Network: [['Cluster', ['spec', 'network']]],
  Image: [['Cluster', ['spec', 'image']]],
  Release: [['Cluster', ['spec', 'release']]],
}

export type Known = Record<Ground, string[]>

// beginning is the text that a person begins with: documents that the director has are not described again.
export function beginning(known: Known): string {
  let text = ''
  for (const kind of grounds) if (known[kind].length === 0) text = append(text, templates[kind])
  text = append(text, templates.Cluster)
  for (const kind of grounds) {
    const first = known[kind][0]
    if (first !== undefined) text = refer(text, kind, first)
  }
  return text
}

// refer has the other documents of the text name that one.
export function refer(text: string, kind: Ground, name: string): string {
  return references[kind].reduce((t, [of, path]) => (partOf(t, of) ? set(t, of, path, name) : t), text)
}

// referred is the document that the cluster names.
export function referred(text: string, kind: Ground): string {
  const path = references[kind].find(([of]) => of === 'Cluster')?.[1] ?? []
  return String(get(text, 'Cluster', path) ?? '')
}

// rename renames the document of the kind, and what names it.
export function rename(text: string, kind: Kind, to: string): string {
  const renamed = set(text, kind, ['metadata', 'name'], to)
  return kind in references ? refer(renamed, kind as Ground, to) : renamed
}

// describe adds the document of the kind to the text, before the others that build on it.
export function describe(text: string, kind: Ground): string {
  if (partOf(text, kind)) return text
  const fresh = append(templates[kind], text)
  const provider = referred(text, 'Provider')
  const added = kind === 'Network' && provider ? set(fresh, kind, ['spec', 'provider'], provider) : fresh
  return refer(added, kind, partOf(templates[kind], kind)?.name ?? '')
}

// useKnown takes the document of the kind out of the text, and names one that the director has.
export function useKnown(text: string, kind: Ground, name: string): string {
  return refer(remove(text, kind), kind, name)
}

// takeImage has the image of the text be one that was imported.
export function takeImage(text: string, of: { sha256: string; kubernetes?: string }): string {
  const own = set(set(text, 'Image', ['spec', 'sha256'], of.sha256), 'Image', ['spec', 'source'], undefined)
  return of.kubernetes ? set(own, 'Image', ['spec', 'kubernetes'], of.kubernetes) : own
}

// takeBundle has the release of the text be a bundle that was imported.
export function takeBundle(text: string, of: { digest: string; kubernetes: string; unsigned?: string }): string {
  const values = { digest: of.digest, bundle: undefined, kubernetes: of.kubernetes, unsigned: of.unsigned || undefined }
  return Object.entries(values).reduce((t, [key, value]) => set(t, 'Release', ['spec', key], value), text)
}

// providerType begins the document of the provider again, as that of another type. Its name stays.
export function providerType(text: string, type: string): string {
  const name = partOf(text, 'Provider')?.name
  if (name === undefined || get(text, 'Provider', ['spec', 'type']) === type) return text
  const fresh = type === 'vsphere' ? vsphereTemplate : templates.Provider
  return append(set(fresh, 'Provider', ['metadata', 'name'], name), remove(text, 'Provider'))
}
