import { Content } from '@patternfly/react-core'
import { useNavigate, useParams } from 'react-router'
import { client } from '../api/client'
import { must } from '../api/must'
import { edits, useMe } from '../app/me'
import { kinds } from '../forms/kinds'
import { Ask, AskButton } from '../ui/ask'
import { Command } from '../ui/command'
import { Nothing, Page } from '../ui/page'
import { Addresses } from './addresses'
import { DiscoveryCard } from './discovery'
import { DocumentText, readDocument } from './documentText'
import { ProjectImages } from './projectImages'

export default function DocumentPage() {
  const { kind: named = '', name = '' } = useParams()
  const me = useMe()
  const navigate = useNavigate()
  const kind = kinds.find((k) => k === named)
  const above = [
    { to: '/documents', text: 'Documents' },
    { to: `/documents/${named}`, text: named },
  ]
  if (!kind)
    return (
      <Page title={name} above={above}>
        <Nothing title={`There is no kind ${named}.`} />
      </Page>
    )
  const remove = async () => {
    const { etag } = await readDocument(kind, name)
    await must(
      client.DELETE('/documents/{kind}/{name}', { params: { path: { kind, name }, header: { 'If-Match': etag } } }),
    )
    void navigate(`/documents/${kind}`)
  }
  return (
    <Page
      title={name}
      above={above}
      actions={
        edits(me) && (
          <AskButton
            variant="secondary"
            isDanger
            ask={(close) => (
              <Ask title={`Delete ${kind} ${name}?`} verb="Delete" danger close={close} act={remove}>
                <Content component="p">
                  Only the document goes, and only if nothing names it. A cluster that exists is deleted by a plan.
                </Content>
                <Command>{`directorctl delete ${kind.toLowerCase()} ${name}`}</Command>
              </Ask>
            )}
          >
            Delete
          </AskButton>
        )
      }
    >
      <div className="stack">
        <DocumentText kind={kind} name={name} />
        {kind === 'Network' && <Addresses network={name} />}
        {kind === 'Project' && <ProjectImages project={name} />}
        {kind === 'Provider' && <DiscoveryCard provider={name} />}
      </div>
    </Page>
  )
}
