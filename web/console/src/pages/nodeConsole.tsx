import { Button, Switch } from '@patternfly/react-core'
import { useEffect, useRef, useState } from 'react'
import { useParams } from 'react-router'
import { api } from '../api/client'
import { printed } from '../logs/line'
import { Actions } from '../ui/actions'
import { Command, quoted } from '../ui/command'
import { Answer, Nothing, Page } from '../ui/page'
import { save } from '../ui/save'
import { Time } from '../ui/time'
import { above } from './node'

const bytes = 262144

// What a node's VM has printed on its serial console, as it grows.
export default function NodeConsolePage() {
  const { name = '', node = '' } = useParams()
  const [follows, setFollows] = useState(true)
  const asked = api.useQuery(
    'get',
    '/clusters/{name}/nodes/{node}/console',
    { params: { path: { name, node }, query: { bytes } } },
    { refetchInterval: 3000 },
  )
  const box = useRef<HTMLPreElement>(null)
  const text = asked.data?.text
  useEffect(() => {
    if (follows && box.current) box.current.scrollTop = box.current.scrollHeight
  }, [follows, text])
  return (
    <Page
      title="Console"
      above={[...above(name), { to: `/clusters/${name}/nodes/${node}`, text: node }]}
      actions={
        <Actions>
          <Switch label="Follow the end" isChecked={follows} onChange={(_, on) => setFollows(on)} />
          <Button
            variant="secondary"
            isDisabled={!text}
            onClick={() => save(`${node}-console.txt`, text ?? '', 'text/plain')}
          >
            Download
          </Button>
        </Actions>
      }
    >
      <Answer of={asked}>
        {(console) => (
          <div className="stack">
            {console.text === '' ? (
              <Nothing title="The VM has printed nothing yet." />
            ) : (
              <pre className="log mono" ref={box} tabIndex={0} aria-label={`What ${node} has printed`}>
                {printed(console.text).join('\n')}
              </pre>
            )}
            <p>
              As the hypervisor had it <Time at={console.at} />. It is asked every three seconds, for the last 256 KiB.
            </p>
            <Command>{`directorctl node console ${quoted(name)} ${quoted(node)}`}</Command>
          </div>
        )}
      </Answer>
    </Page>
  )
}
