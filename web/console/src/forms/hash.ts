import { sha256 } from '@noble/hashes/sha2.js'

// hash returns the SHA-256 of a file of any size, in hexadecimal digits. It holds a piece of it in memory at a time.
// (The browser's own function needs the whole file at once.)
export async function hash(file: Blob, done: (bytes: number) => void, pieceSize = 8 << 20): Promise<string> {
  const sum = sha256.create()
  for (let at = 0; at < file.size; at += pieceSize) {
    sum.update(new Uint8Array(await file.slice(at, at + pieceSize).arrayBuffer()))
    done(Math.min(file.size, at + pieceSize))
  }
  return [...sum.digest()].map((b) => b.toString(16).padStart(2, '0')).join('')
}
