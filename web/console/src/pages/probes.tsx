import { Button, Spinner } from '@patternfly/react-core'
import { useAsked } from '../api/asked'
import { list, type Schemas } from '../api/client'
import { Alert } from '../ui/alert'
import { ProblemAlert } from '../ui/problem'
import { Status } from '../ui/status'

interface ProbesProps {
  kind: string
  name: string
  ask: () => Promise<Schemas['ProviderTest']>
}

// Probes asks something outside of the director on request, and says of each thing whether it is well.
export function Probes({ kind, name, ask }: ProbesProps) {
  const { data: result, error, isFetching: busy, refetch } = useAsked(['test', kind, name], ask)
  return (
    <div className="stack">
      <Button
        variant="secondary"
        isLoading={busy}
        isDisabled={busy}
        onClick={() => void refetch()}
        aria-label={`Test ${name}`}
      >
        Test
      </Button>
      {busy && (
        <p className="hint" role="status">
          <Spinner size="sm" aria-label={`Asking ${name}`} /> Asking {name}, which may take minutes. You can leave this
          page: the answer is here when you come back.
        </p>
      )}
      {error && !busy && <ProblemAlert of={error} />}
      {result && !error && !busy && (
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
