import { Button, Toolbar, ToolbarContent, ToolbarItem } from '@patternfly/react-core'
import { useQuery } from '@tanstack/react-query'
import { client } from '../api/client'
import { must } from '../api/must'
import { edits, useMe } from '../app/me'
import type { Kind } from '../forms/kinds'
import { Command } from '../ui/command'
import { LinkButton } from '../ui/linkButton'
import { Answer } from '../ui/page'
import { save } from '../ui/save'

// readDocument returns the text of a document, and the version that a change must be made from.
export async function readDocument(kind: Kind, name: string): Promise<{ text: string; etag: string }> {
  let etag = ''
  const text = await must(
    client
      .GET('/documents/{kind}/{name}', {
        params: { path: { kind, name }, header: { Accept: 'application/yaml' } },
        parseAs: 'text',
      })
      .then((answer) => {
        etag = answer.response.headers.get('ETag') ?? ''
        return answer
      }),
  )
  return { text: text as unknown as string, etag }
}

// DocumentText shows a document as the text that can be applied again.
export function DocumentText({ kind, name }: { kind: Kind; name: string }) {
  const me = useMe()
  const asked = useQuery({
    queryKey: ['get', '/documents/{kind}/{name}', { params: { path: { kind, name } }, as: 'yaml' }],
    queryFn: () => readDocument(kind, name),
  })
  return (
    <Answer of={asked}>
      {({ text }) => (
        <div className="stack">
          <Toolbar>
            <ToolbarContent>
              {edits(me) && (
                <ToolbarItem>
                  <LinkButton to={`/apply?kind=${kind}&name=${name}`}>Edit</LinkButton>
                </ToolbarItem>
              )}
              <ToolbarItem>
                <Button variant="secondary" onClick={() => save(`${name}.yaml`, text, 'application/yaml')}>
                  Download YAML
                </Button>
              </ToolbarItem>
            </ToolbarContent>
          </Toolbar>
          <pre className="mono pre" tabIndex={0} aria-label={`${kind} ${name}`}>
            {text}
          </pre>
          <Command>{`directorctl get ${kind.toLowerCase()} ${name} -o yaml`}</Command>
        </div>
      )}
    </Answer>
  )
}
