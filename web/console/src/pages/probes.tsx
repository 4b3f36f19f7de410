import { Button } from '@patternfly/react-core'
import { useState } from 'react'
import { list, type Schemas } from '../api/client'
import { Alert } from '../ui/alert'
import { ProblemAlert } from '../ui/problem'
import { Status } from '../ui/status'

interface ProbesProps {
  name: string
  ask: () => Promise<Schemas['ProviderTest']>
}

// Probes asks something outside of the director on request, and says of each thing whether it is well.
export function Probes({ name, ask }: ProbesProps) {
  const [busy, setBusy] = useState(false)
  const [result, setResult] = useState<Schemas['ProviderTest']>()
  const [failed, setFailed] = useState<unknown>()
  const test = async () => {
    setBusy(true)
    setFailed(undefined)
    try {
      setResult(await ask())
    } catch (err) {
      setFailed(err)
    } finally {
      setBusy(false)
    }
  }
  return (
    <div className="stack">
      <Button
        variant="secondary"
        isLoading={busy}
        isDisabled={busy}
        onClick={() => void test()}
        aria-label={`Test ${name}`}
      >
        Test
      </Button>
      {failed !== undefined && <ProblemAlert of={failed} />}
      {result && (
        <Alert
          isInline
          variant={result.ok ? 'success' : 'danger'}
          title={result.ok ? 'Everything was found.' : 'Something is wrong.'}
          role="status"
        >
          <ul>
            {list(result.probes).map((p, i) => (
              <li key={i}>
                <Status of={p.ok ? 'ok' : 'failed'} /> {p.host && `${p.host}: `}
                {p.what}
                {p.found && `: ${p.found}`}
                {p.problem && `: ${p.problem}`}
                {p.hint && <div className="hint">{p.hint}</div>}
              </li>
            ))}
          </ul>
        </Alert>
      )}
    </div>
  )
}
