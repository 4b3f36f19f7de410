import { Button, PageSection } from '@patternfly/react-core'
import { Link, useRouteError } from 'react-router'
import { Nothing, Page } from '../ui/page'
import { Alert } from '../ui/alert'

// Broken is shown in place of a page that failed. After an upgrade of the director, parts of the old console are gone.
export function Broken() {
  const err = useRouteError()
  const upgraded = err instanceof TypeError && /dynamically imported module|Importing a module/.test(err.message)
  return (
    <PageSection>
      <Alert
        isInline
        variant="danger"
        title={upgraded ? 'This page was loaded from another version of the director.' : 'This page has failed.'}
      >
        {!upgraded && <p className="mono">{err instanceof Error ? err.message : String(err)}</p>}
        <Button onClick={() => location.reload()}>Load the page again</Button>
      </Alert>
    </PageSection>
  )
}

export function NotFound() {
  return (
    <Page title="There is no such page">
      <Nothing title="There is no such page">
        <Link to="/">Go to the inbox</Link>
      </Nothing>
    </Page>
  )
}
