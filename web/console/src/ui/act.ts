import { useState } from 'react'

// useAct does what a button says: it is busy meanwhile, and has what failed until the next time.
export function useAct() {
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState<unknown>()
  const act = async (what: () => Promise<unknown>) => {
    setBusy(true)
    setFailed(undefined)
    try {
      await what()
    } catch (err) {
      setFailed(err)
    } finally {
      setBusy(false)
    }
  }
  return { busy, failed, act }
}
