import { Button, Form, FormGroup, FormHelperText, HelperText, HelperTextItem, TextInput } from '@patternfly/react-core'
import { lazy, Suspense, useState, type FormEvent } from 'react'
import { useParams } from 'react-router'
import { Alert } from '../ui/alert'
import { Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { above } from './node'
import type { End } from '../ui/terminal'

const Terminal = lazy(() => import('../ui/terminal'))

// A shell on a node, for administrators. Who had it and why is in the audit trail.
export default function NodeShellPage() {
  const { name = '', node = '' } = useParams()
  const [reason, setReason] = useState('')
  const [open, setOpen] = useState(false)
  const [end, setEnd] = useState<End>()
  const begin = (e: FormEvent) => {
    e.preventDefault()
    if (reason.trim() === '') return
    setEnd(undefined)
    setOpen(true)
  }
  const url = `/api/v1/clusters/${encodeURIComponent(name)}/nodes/${encodeURIComponent(node)}/shell`
  return (
    <Page title="Shell" above={[...above(name), { to: `/clusters/${name}/nodes/${node}`, text: node }]}>
      <div className="stack">
        {end?.problem && <ProblemAlert of={end.problem} />}
        {end?.ended && <Alert isInline variant="info" title={`The shell is closed: ${end.ended}.`} />}
        {open ? (
          <Suspense>
            <Terminal
              url={url}
              reason={reason.trim()}
              label={`Shell on ${node}`}
              ended={(why) => {
                setEnd(why)
                setOpen(false)
              }}
            />
          </Suspense>
        ) : (
          <Form onSubmit={begin}>
            <FormGroup label="Why" fieldId="reason" isRequired>
              <TextInput
                id="reason"
                value={reason}
                maxLength={200}
                autoComplete="off"
                aria-describedby="reason-help"
                onChange={(_, v) => setReason(v)}
              />
              <FormHelperText id="reason-help">
                <HelperText>
                  <HelperTextItem>
                    It is in the audit trail with your name. The shell may do everything on the node, and the cluster
                    does not know of it: plans are the better way for what they can do.
                  </HelperTextItem>
                </HelperText>
              </FormHelperText>
            </FormGroup>
            <div>
              <Button type="submit" isDisabled={reason.trim() === ''}>
                Open a shell
              </Button>
            </div>
          </Form>
        )}
      </div>
    </Page>
  )
}
