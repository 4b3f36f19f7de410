// Brings a file to the director: its checksum, and its pieces.
import { client, type Schemas } from '../api/client'
import { must } from '../api/must'
import { problemOf } from '../api/problem'
import { send } from './upload'

type Upload = Schemas['Upload']

export interface Stage {
  text: string
  done: number
  total: number
}

// sumOf has a worker compute the checksum of the file.
function sumOf(file: File, done: (bytes: number) => void, signal: AbortSignal): Promise<string> {
  const worker = new Worker(new URL('./hash.worker.ts', import.meta.url), { type: 'module' })
  return new Promise<string>((resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error))
    worker.onerror = () => reject(new Error('The browser cannot compute the checksum of the file.'))
    worker.onmessage = (e: MessageEvent<{ bytes?: number; sum?: string; failed?: string }>) => {
      if (e.data.bytes !== undefined) done(e.data.bytes)
      if (e.data.sum !== undefined) resolve(e.data.sum)
      if (e.data.failed !== undefined) reject(new Error(e.data.failed))
    }
    worker.postMessage(file)
  }).finally(() => worker.terminate())
}

export const wait = (milliseconds: number) => new Promise<void>((resolve) => setTimeout(resolve, milliseconds))

// Delivery is a file on its way, with what the director wants to know of it before it is sent.
export interface Delivery {
  file: File
  about: Pick<Schemas['UploadRequest'], 'kind' | 'checksum' | 'signature' | 'unsigned'>
  ahead: boolean // the browser computes the checksum before it sends
  signal: AbortSignal
  show: (stage: Stage) => void
}

// begun remembers the upload of a file whose checksum is not known, so that it continues after a reload of the page.
// What arrives is compared in the end, so a file that only looks like the same one does no harm.
const begun = {
  key: (file: File) => `director.upload.${file.name}.${file.size}.${file.lastModified}`,
  get: (file: File): string | undefined => {
    try {
      return sessionStorage.getItem(begun.key(file)) ?? undefined
    } catch {
      return undefined
    }
  },
  set: (file: File, id: string | undefined) => {
    try {
      if (id === undefined) sessionStorage.removeItem(begun.key(file))
      else sessionStorage.setItem(begun.key(file), id)
    } catch {
      // Then it begins again after a reload.
    }
  },
}

// bring sends the file, and returns the checksum that the director has it under. It can be asked again after any
// failure: what has arrived stays. Without a checksum ahead, the director computes it.
export async function bring({ file, about, ahead, signal, show }: Delivery): Promise<string> {
  const sum = ahead
    ? await sumOf(file, (done) => show({ text: 'Computing the checksum', done, total: file.size }), signal)
    : undefined
  let id = sum ? undefined : begun.get(file)
  const begin = async (): Promise<Upload> => {
    if (id !== undefined) {
      try {
        return await must(client.GET('/uploads/{id}', { params: { path: { id } } }))
      } catch (err) {
        if (problemOf(err).status !== 404) throw err // it was given up meanwhile
      }
    }
    const upload = await must(
      client.POST('/uploads', { body: { sha256: sum, size: file.size, name: file.name, ...about } }),
    )
    if (upload.unchecked) {
      id = upload.id
      begun.set(file, id)
    }
    return upload
  }
  const sent = await send(
    file,
    {
      begin,
      add: (at, offset, piece) =>
        must(
          client.PATCH('/uploads/{id}', {
            params: { path: { id: at }, header: { 'Upload-Offset': offset } as never },
            headers: { 'Content-Type': 'application/offset+octet-stream', 'Upload-Offset': String(offset) },
            body: piece as never,
            bodySerializer: (b: unknown) => b as Blob,
            signal,
          }),
        ),
      wait,
    },
    (done) => show({ text: done === file.size ? 'Computing the checksum' : 'Sending', done, total: file.size }),
    signal,
  )
  begun.set(file, undefined)
  return sent
}
