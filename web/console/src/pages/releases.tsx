import { Content } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { useQueryClient } from '@tanstack/react-query'
import { useState, type ReactNode } from 'react'
import { Link, useNavigate } from 'react-router'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { edits, useMe } from '../app/me'
import { Actions } from '../ui/actions'
import { ActionsCell } from '../ui/actionsCell'
import { Alert } from '../ui/alert'
import { Td, Th, Tr } from '../ui/cells'
import { atOnce, quoted } from '../ui/command'
import { LinkButton } from '../ui/linkButton'
import { Answer, Nothing } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { size } from '../ui/size'
import { Time } from '../ui/time'
import { DeleteImported } from './deleteImported'
import { Prune } from './prune'

type Release = Schemas['Release']

const shown = (r: Release) => r.name ?? r.file?.name ?? r.digest?.slice(0, 16) ?? ''

// Releases are the documents of releases and the imported bundles.
export function Releases() {
  const me = useMe()
  const navigate = useNavigate()
  const queries = useQueryClient()
  const [asks, setAsks] = useState<ReactNode>()
  const [whole, setWhole] = useState<Release>()
  const [reading, setReading] = useState('')
  const [failed, setFailed] = useState<unknown>()
  const asked = api.useQuery('get', '/releases', {})
  const changed = () => queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/releases' })
  const verify = (r: Release) => {
    setFailed(undefined)
    setWhole(undefined)
    setReading(shown(r))
    must(client.POST('/releases/{name}/verify', { params: { path: { name: r.name ?? r.digest ?? '' } } }))
      .then(setWhole, setFailed)
      .finally(() => setReading(''))
  }
  const actions = (r: Release) => [
    atOnce('Read to its end', `directorctl release verify ${quoted(r.name ?? r.digest ?? '')}`, () => verify(r)),
    ...(edits(me) && r.file
      ? [
          ...(r.name
            ? []
            : [{ title: 'Write its document', onClick: () => void navigate(documentOf(r.file, r.unsigned)) }]),
          {
            title: 'Delete the bundle',
            onClick: () => setAsks(<DeleteBundle of={r} close={() => setAsks(undefined)} changed={changed} />),
          },
        ]
      : []),
  ]
  return (
    <div className="stack">
      <Content component="p">Bundles of images and packages, one for each version of Kubernetes.</Content>
      {edits(me) && (
        <Actions>
          <LinkButton to="/releases/import">Import a bundle</LinkButton>
          <LinkButton variant="secondary" to="/apply?template=Release">
            New Release
          </LinkButton>
          <Prune
            what="bundles"
            text="Imported bundles that no document and no plan needs. What was imported within the last day stays."
            command="directorctl release prune"
            look={async (dry) => {
              const p = await must(client.POST('/releases/prune', { params: { query: { dry_run: dry } } }))
              return list(p.items).map((l) => ({ name: `${l.name} (${l.digest.slice(0, 16)})`, size: l.size }))
            }}
            done={changed}
          />
        </Actions>
      )}
      {failed !== undefined && <ProblemAlert of={failed} />}
      {reading && <p role="status">Reading all of {reading}…</p>}
      {whole && (
        <Alert
          isInline
          variant="success"
          role="status"
          title={`${shown(whole)} is whole: Kubernetes ${whole.kubernetes}.`}
        />
      )}
      <Answer of={asked}>
        {(r) =>
          list(r.items).length === 0 ? (
            <Nothing title="There is no release yet." />
          ) : (
            <Table role="table" aria-label="Releases" variant="compact">
              <Thead>
                <Tr>
                  <Th>Release</Th>
                  <Th>Kubernetes</Th>
                  <Th>Bundle</Th>
                  <Th>Clusters</Th>
                  <Th>Signed by</Th>
                  <Th screenReaderText="Actions" />
                </Tr>
              </Thead>
              <Tbody>
                {list(r.items).map((one) => (
                  <Tr key={`${one.name} ${one.digest}`}>
                    <Td dataLabel="Release" className="break">
                      {one.name ? (
                        <Link to={`/documents/Release/${one.name}`}>{one.name}</Link>
                      ) : (
                        <>
                          {shown(one)}
                          <div className="hint">no document names it</div>
                        </>
                      )}
                      {one.refused && <div className="hint">{one.refused}</div>}
                    </Td>
                    <Td dataLabel="Kubernetes">{one.kubernetes}</Td>
                    <Td dataLabel="Bundle" className="break">
                      {one.file ? (
                        <>
                          <span className="mono">{one.file.digest.slice(0, 16)}</span>, {size(one.file.size)}
                          <div className="hint">
                            imported <Time at={one.file.imported_at} />{' '}
                            {one.file.imported_by && `by ${one.file.imported_by}`}
                          </div>
                        </>
                      ) : (
                        (one.directory ?? '–')
                      )}
                    </Td>
                    <Td dataLabel="Clusters" className="break">
                      {list(one.clusters).join(', ') || '–'}
                    </Td>
                    <Td dataLabel="Signed by" className="break">
                      {one.signed_by ?? (one.unsigned ? `without: ${one.unsigned}` : '–')}
                    </Td>
                    <ActionsCell of={shown(one)} items={actions(one)} />
                  </Tr>
                ))}
              </Tbody>
            </Table>
          )
        }
      </Answer>
      {asks}
    </div>
  )
}

// documentOf is where the document of an imported bundle is written.
export function documentOf(f: Schemas['ReleaseFile'] | undefined, unsigned = ''): string {
  if (!f) return '/apply?template=Release'
  const about = new URLSearchParams({ template: 'Release', name: f.name, digest: f.digest, kubernetes: f.kubernetes })
  if (unsigned) about.set('unsigned', unsigned)
  return `/apply?${about.toString()}`
}

interface DialogProps {
  of: Release
  close: () => void
  changed: () => Promise<unknown>
}

function DeleteBundle({ of, close, changed }: DialogProps) {
  const digest = of.digest ?? ''
  return (
    <DeleteImported
      title={`Delete the bundle ${shown(of)}?`}
      verb="Delete the bundle"
      what="bundle"
      command={`directorctl release delete ${digest}`}
      close={close}
      act={async () => {
        await must(client.DELETE('/releases/{digest}', { params: { path: { digest } } }))
        await changed()
      }}
    />
  )
}
