import { hash } from './hash'

// In a worker, so that the page stays alive meanwhile.
addEventListener('message', (e: MessageEvent<File>) => {
  hash(e.data, (bytes) => postMessage({ bytes })).then(
    (sum) => postMessage({ sum }),
    (err: unknown) => postMessage({ failed: err instanceof Error ? err.message : String(err) }),
  )
})
