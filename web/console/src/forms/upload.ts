// Sends a file in pieces, from where an earlier try ended.
import type { Schemas } from '../api/client'
import { problemOf } from '../api/problem'

type Upload = Schemas['Upload']

export interface Sender {
  begin: () => Promise<Upload> // also tells how much has arrived
  add: (id: string, offset: number, piece: Blob) => Promise<Upload>
  wait: (milliseconds: number) => Promise<void>
}

const pieceSize = 16 << 20
const mostTries = 8 // of one piece, in about two minutes

// send returns the id of the upload when all of the file has arrived. A piece that is cut off is sent again from where
// the director has it; what the director refuses is thrown.
export async function send(
  file: Blob,
  sender: Sender,
  sent: (bytes: number) => void,
  signal?: AbortSignal,
): Promise<string> {
  let upload = await sender.begin()
  let failures = 0
  while (upload.offset < file.size) {
    signal?.throwIfAborted()
    sent(upload.offset)
    try {
      upload = await sender.add(upload.id, upload.offset, file.slice(upload.offset, upload.offset + pieceSize))
      failures = 0
    } catch (err) {
      const status = problemOf(err).status
      const passing = status === 0 || status === 409 || status === 429 || status >= 500
      if (!passing || ++failures >= mostTries) throw err
      await sender.wait(Math.min(30_000, 500 * 2 ** failures))
      upload = await sender.begin()
    }
  }
  // A director that died after the last piece has not computed the checksum yet.
  if (upload.unchecked) upload = await sender.add(upload.id, upload.offset, file.slice(0, 0))
  sent(file.size)
  return upload.id
}

// compared says how a checksum that a person pasted compares with the one that was computed. A line of sha256sum will
// do.
export function compared(sum: string, pasted: string): 'nothing' | 'same' | 'other' {
  const digits = /^(?:sha256:)?([0-9a-f]{64})(?![0-9a-f])/i.exec(pasted.trim())?.[1]
  if (pasted.trim() === '') return 'nothing'
  return digits?.toLowerCase() === sum ? 'same' : 'other'
}
