import { AlertActionCloseButton } from '@patternfly/react-core'
import { useState } from 'react'
import { api } from '../api/client'
import { remember, remembered } from '../app/remembered'
import { Alert } from '../ui/alert'

const key = 'director.notice' // the text that was dismissed last in this browser

// Notice is what the director's configuration tells everyone who logs in, until they dismiss it. A new text is shown
// again.
export function Notice() {
  const settings = api.useQuery('get', '/settings', {})
  const [dismissed, setDismissed] = useState(() => remembered(key))
  const text = settings.data?.notice
  if (!text || text === dismissed) return null
  const dismiss = () => {
    remember(key, text)
    setDismissed(text)
  }
  return (
    <Alert
      variant="info"
      isInline
      title="About this director"
      actionClose={<AlertActionCloseButton aria-label="Dismiss the notice" onClose={dismiss} />}
    >
      <p className="pre">{text}</p>
    </Alert>
  )
}
