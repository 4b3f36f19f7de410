// A release bundle on a mirror: the fields that say where, and the fetch by the director.
import { FormGroup, TextArea, TextInput } from '@patternfly/react-core'
import { client, type Schemas } from '../api/client'
import { must } from '../api/must'
import type { Stage } from '../forms/bring'
import { ended } from '../forms/jobs'
import { stopped } from './importParts'

type Mirror = Required<Schemas['ReleaseFetch']>

export const emptyMirror: Mirror = { url: '', ca: '', user: '', password: '' }

// isMirror reports whether there is an address that the director can be asked to fetch from.
export const isMirror = (m: Mirror) => /^https:\/\/[^/]+\/./.test(m.url.trim())

// fetchedFrom has the director fetch the archive, and returns its upload. When the page is left, the director goes on
// without it.
// Stop ends the fetch and throws away what has arrived.
export async function fetchedFrom(m: Mirror, show: (s: Stage) => void, signal: AbortSignal): Promise<string> {
  const url = m.url.trim()
  const body = { url, ca: m.ca || undefined, user: m.user || undefined, password: m.password || undefined }
  try {
    const job = await ended({
      start: () => must(client.POST('/release-fetches', { body })),
      again: (j) => must(client.GET('/release-fetches/{id}', { params: { path: { id: j.id } }, signal })),
      show: (j) => show({ text: 'The director fetches the archive', done: j.done ?? 0, total: j.total ?? 0 }),
      signal,
    })
    return job.upload?.id ?? ''
  } catch (err) {
    if (signal.reason === stopped) await must(client.POST('/release-fetches/cancel', { body: { url } }))
    throw err
  }
}

interface Props {
  of: Mirror
  set: (m: Mirror) => void
  busy: boolean
}

export function MirrorFields({ of, set, busy }: Props) {
  return (
    <>
      <FormGroup label="Address of the archive, with https" fieldId="mirror-url" isRequired>
        <TextInput
          id="mirror-url"
          type="url"
          isRequired
          isDisabled={busy}
          value={of.url}
          onChange={(_, url) => set({ ...of, url })}
        />
      </FormGroup>
      <FormGroup label="Certificate of the mirror's authority, if it has one of its own" fieldId="mirror-ca">
        <TextArea id="mirror-ca" rows={3} disabled={busy} value={of.ca} onChange={(_, ca) => set({ ...of, ca })} />
      </FormGroup>
      <FormGroup label="Account at the mirror, if it asks for one" fieldId="mirror-user">
        <TextInput
          id="mirror-user"
          isDisabled={busy}
          autoComplete="off"
          value={of.user}
          onChange={(_, user) => set({ ...of, user })}
        />
      </FormGroup>
      {of.user && (
        <FormGroup label="Its password, which is not stored" fieldId="mirror-password">
          <TextInput
            id="mirror-password"
            type="password"
            isDisabled={busy}
            autoComplete="off"
            value={of.password}
            onChange={(_, password) => set({ ...of, password })}
          />
        </FormGroup>
      )}
    </>
  )
}
