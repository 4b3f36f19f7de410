import { expect, test } from 'vitest'
import { hash } from './hash'
import { compared, send, type Sender } from './upload'

const size = 40 << 20
const file = new Blob([new Uint8Array(size)])

// A director that has a part of the file, and cuts off the pieces that are named.
function director(
  has: number,
  cut: Record<number, unknown> = {},
): { sender: Sender; offsets: number[]; waited: number[] } {
  const offsets: number[] = []
  const waited: number[] = []
  let calls = 0
  return {
    offsets,
    waited,
    sender: {
      begin: () => Promise.resolve({ id: 'u', kind: 'image', offset: has, size }),
      add: (_, offset, piece) => {
        offsets.push(offset)
        const failure = cut[++calls]
        has = offset + (failure ? 1000 : piece.size)
        return failure ? Promise.reject(failure) : Promise.resolve({ id: 'u', kind: 'image', offset: has, size })
      },
      wait: (ms) => {
        waited.push(ms)
        return Promise.resolve()
      },
    },
  }
}

test('what has arrived is not sent again', async () => {
  const d = director(32 << 20)
  const seen: number[] = []
  expect(await send(file, d.sender, (n) => seen.push(n))).toBe('u')
  expect(d.offsets).toEqual([32 << 20])
  expect(seen).toEqual([32 << 20, size])
})

test('a piece that is cut off goes on from where the director has it', async () => {
  const d = director(0, { 2: new TypeError('network'), 3: { detail: 'full', kind: 'unavailable', status: 503 } })
  await send(file, d.sender, () => undefined)
  const first = 16 << 20
  expect(d.offsets.slice(0, 4)).toEqual([0, first, first + 1000, first + 2000])
  expect(d.waited).toEqual([1000, 2000])
})

test('what is refused is not tried again', async () => {
  const refusal = { detail: 'this is no disk image', kind: 'invalid', status: 422 }
  const d = director(0, { 1: refusal })
  await expect(send(file, d.sender, () => undefined)).rejects.toBe(refusal)
  expect(d.offsets).toHaveLength(1)
})

test('it gives up in the end', async () => {
  const d = director(0, Object.fromEntries(Array.from({ length: 100 }, (_, i) => [i + 1, new TypeError('network')])))
  await expect(send(file, d.sender, () => undefined)).rejects.toThrow('network')
  expect(d.offsets).toHaveLength(8)
})

test('hash reads a file piece by piece', async () => {
  const seen: number[] = []
  expect(await hash(new Blob(['abc']), (n) => seen.push(n), 2)).toBe(
    'ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad',
  )
  expect(seen).toEqual([2, 3])
  expect(await hash(new Blob([]), () => undefined)).toBe(
    'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
  )
})

test('a checksum is compared as people paste it', () => {
  const sum = 'ab'.repeat(32)
  expect(compared(sum, '')).toBe('nothing')
  for (const same of [sum, ` ${sum.toUpperCase()} `, `${sum}  node.qcow2`, `sha256:${sum}`]) {
    expect(compared(sum, same), same).toBe('same')
  }
  for (const other of ['ab', 'cd'.repeat(32), `${sum}0`]) expect(compared(sum, other), other).toBe('other')
})

test('a director that died before it computed the checksum is asked for it with an empty piece', async () => {
  const file = new Blob(['abc'])
  const pieces: number[] = []
  const id = await send(
    file,
    {
      begin: () => Promise.resolve({ id: 'r', kind: 'image', size: 3, offset: 3, unchecked: true }),
      add: (_, offset, piece) => {
        pieces.push(offset, piece.size)
        return Promise.resolve({ id: 'sum', kind: 'image', size: 3, offset: 3 })
      },
      wait: () => Promise.resolve(),
    },
    () => undefined,
  )
  expect([id, ...pieces]).toEqual(['sum', 3, 0])
})
