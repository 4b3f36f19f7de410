import { AlertActionLink, Content, List, ListItem } from '@patternfly/react-core'
import { Link } from 'react-router'
import { problemOf } from '../api/problem'
import { Alert } from './alert'

// ProblemAlert says what is wrong, at which places, and what to do next.
export function ProblemAlert({ of, retry }: { of: unknown; retry?: () => void }) {
  const p = problemOf(of)
  return (
    <Alert
      isInline
      variant="danger"
      title={p.detail}
      actionLinks={retry && <AlertActionLink onClick={retry}>Try again</AlertActionLink>}
      role="alert"
    >
      {p.errors && p.errors.length > 0 && (
        <List>
          {p.errors.map((e, i) => (
            <ListItem key={i}>
              <strong>{e.field}</strong>: {e.message}
              {e.hint ? ` – ${e.hint}` : ''}
            </ListItem>
          ))}
        </List>
      )}
      {p.hint && <Content component="p">{p.hint}</Content>}
      {p.holder && (
        <Content component="p">
          The plan in the way: <Link to={`/plans/${p.holder.plan}`}>{p.holder.operation ?? p.holder.plan}</Link>
        </Content>
      )}
      {p.request_id && <Content component="small">Request {p.request_id}</Content>}
    </Alert>
  )
}
