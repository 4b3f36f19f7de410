import { Content, FormGroup, FormSelect, FormSelectOption } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { useQueryClient } from '@tanstack/react-query'
import { useState, type ReactNode } from 'react'
import { Link } from 'react-router'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { edits, useMe } from '../app/me'
import { ended } from '../forms/jobs'
import { Actions } from '../ui/actions'
import { ActionsCell } from '../ui/actionsCell'
import { Ask } from '../ui/ask'
import { Td, Th, Tr } from '../ui/cells'
import { Command, quoted } from '../ui/command'
import { LinkButton } from '../ui/linkButton'
import { Answer, Nothing } from '../ui/page'
import { size } from '../ui/size'
import { Time } from '../ui/time'
import { DeleteImported } from './deleteImported'
import { Prune } from './prune'

type Image = Schemas['Image']

const shown = (i: Image) => i.name ?? i.sha256.slice(0, 16)

// Images are the documents of images and the imported files, and what can be done with the files.
export function Images() {
  const me = useMe()
  const queries = useQueryClient()
  const [asks, setAsks] = useState<ReactNode>()
  const asked = api.useQuery('get', '/images', {})
  const close = () => setAsks(undefined)
  const changed = () => queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/images' })
  const actions = (i: Image) => [
    { title: 'Convert', onClick: () => setAsks(<Convert of={i} close={close} changed={changed} />) },
    { title: 'Delete the file', onClick: () => setAsks(<DeleteFile of={i} close={close} changed={changed} />) },
  ]
  return (
    <>
      {edits(me) && (
        <Actions>
          <LinkButton to="/images/import">Import an image</LinkButton>
          <Prune
            what="images"
            text={
              'Images on providers, and imported files, that no document, no VM and no plan needs. ' +
              'What was imported within the last day stays.'
            }
            command="directorctl image prune"
            look={async (dry) => {
              const p = await must(client.POST('/images/prune', { params: { query: { dry_run: dry } } }))
              return list(p.items).map((l) => ({
                name: `${l.name ?? l.sha256.slice(0, 16)}${l.provider ? ` on ${l.provider}` : ''}`,
                size: l.size,
                kept: l.kept,
              }))
            }}
            done={changed}
          />
        </Actions>
      )}
      <Answer of={asked}>
        {(i) =>
          list(i.items).length === 0 ? (
            <Nothing title="There is no image yet." />
          ) : (
            <Table role="table" aria-label="Images" variant="compact">
              <Thead>
                <Tr>
                  <Th>Image</Th>
                  <Th>Kubernetes</Th>
                  <Th>Clusters</Th>
                  <Th>Providers</Th>
                  <Th>Signed by</Th>
                  <Th>SHA-256</Th>
                  <Th>Imported</Th>
                  {edits(me) && <Th screenReaderText="Actions" />}
                </Tr>
              </Thead>
              <Tbody>
                {list(i.items).map((one) => (
                  <Tr key={`${one.name ?? ''} ${one.sha256}`}>
                    <Td dataLabel="Image">
                      {one.name ? <Link to={`/documents/Image/${one.name}`}>{one.name}</Link> : 'no document names it'}
                      {one.refused && <div className="hint">{one.refused}</div>}
                    </Td>
                    <Td dataLabel="Kubernetes">{one.kubernetes}</Td>
                    <Td dataLabel="Clusters">{list(one.clusters).length}</Td>
                    <Td dataLabel="Providers">{list(one.providers).join(', ') || '–'}</Td>
                    <Td dataLabel="Signed by">{one.signed_by ?? '–'}</Td>
                    <Td dataLabel="SHA-256" className="mono">
                      {one.sha256.slice(0, 16)}
                    </Td>
                    <Td dataLabel="Imported">
                      {one.file ? (
                        <>
                          <Time at={one.file.imported_at} />
                          <div className="hint">
                            {size(one.file.size)}, qcow2 {one.file.compat}
                          </div>
                        </>
                      ) : (
                        '–'
                      )}
                    </Td>
                    {edits(me) && <ActionsCell of={shown(one)} items={one.file ? actions(one) : []} />}
                  </Tr>
                ))}
              </Tbody>
            </Table>
          )
        }
      </Answer>
      {asks}
    </>
  )
}

interface DialogProps {
  of: Image
  close: () => void
  changed: () => Promise<unknown>
}

function DeleteFile({ of, close, changed }: DialogProps) {
  return (
    <DeleteImported
      title={`Delete the file of ${shown(of)}?`}
      verb="Delete the file"
      what="file"
      command={`directorctl image delete ${of.name ? quoted(of.name) : of.sha256}`}
      close={close}
      act={async () => {
        await must(client.DELETE('/images/{sha256}', { params: { path: { sha256: of.sha256 } } }))
        await changed()
      }}
    />
  )
}

function Convert({ of, close, changed }: DialogProps) {
  const [compat, setCompat] = useState<'0.10' | '1.1'>(of.file?.compat === '0.10' ? '1.1' : '0.10')
  const [stage, setStage] = useState('')
  return (
    <Ask
      title={`Convert ${shown(of)}`}
      verb="Convert"
      close={close}
      act={async () => {
        await ended({
          start: () =>
            must(
              client.POST('/images/{sha256}/convert', { params: { path: { sha256: of.sha256 } }, body: { compat } }),
            ),
          again: (job) => must(client.GET('/image-jobs/{id}', { params: { path: { id: job.id } } })),
          show: (j) => setStage(j.total ? `${j.stage}: ${size(j.done ?? 0)} of ${size(j.total)}` : j.stage),
        })
        setStage('')
        await changed()
      }}
    >
      <FormGroup label="Version of qcow2" fieldId="convert-compat">
        <FormSelect id="convert-compat" value={compat} onChange={(_, v) => setCompat(v as '0.10' | '1.1')}>
          <FormSelectOption value="0.10" label="0.10, for old hosts" />
          <FormSelectOption value="1.1" label="1.1" />
        </FormSelect>
      </FormGroup>
      <Content component="p">
        It becomes another file with a checksum of its own, which a document of its own names. The old one stays.
      </Content>
      {of.name && <Command>{`directorctl image convert ${quoted(of.name)} --compat ${compat} --as NAME`}</Command>}
      <p role="status">{stage}</p>
    </Ask>
  )
}
