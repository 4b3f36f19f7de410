import { Card, CardBody, CardTitle, Form } from '@patternfly/react-core'
import { useQuery } from '@tanstack/react-query'
import { list } from '../api/client'
import { fields } from '../forms/fields'
import { FormFields } from '../forms/formFields'
import type { Known } from '../forms/first'
import type { Kind } from '../forms/kinds'
import type { Mark } from '../forms/places'
import { broken, get, partOf } from '../forms/tree'
import { LookAtDraft, Looking, useDiscovery, useDraftDiscovery } from './discovery'
import { knownDocuments } from './known'
import { Pools } from './pools'

interface DocumentFormProps {
  kind: Kind
  text: string
  marks: Mark[]
  edit: (text: string) => void
}

// hasForm reports whether there is a form next to the text of the kind.
export const hasForm = (kind: Kind | undefined) => kind === 'Provider' || kind === 'Network' || kind === 'Cluster'

// DocumentForm changes the first document of the kind in the text. What it has no field for is changed in the text.
export function DocumentForm({ kind, text, marks, edit }: DocumentFormProps) {
  const asked = useQuery({ queryKey: ['known documents'], queryFn: knownDocuments, staleTime: 30_000 })
  const known: Partial<Known> = asked.data ?? {}
  const provider = kind === 'Provider' ? partOf(text, kind)?.name : String(get(text, kind, ['spec', 'provider']) ?? '')
  const there = !!provider && (known.Provider ?? []).includes(provider)
  const looks = kind !== 'Cluster' && there
  const stored = useDiscovery(looks ? provider : undefined)
  const draft = useDraftDiscovery(text)
  const drafted = kind === 'Provider' && !!provider && !there
  if (broken(text) || !partOf(text, kind)) return null
  const names = (of: Kind) => list(known[of as keyof Known])
  return (
    <div className="stack">
      <Card component="section">
        <CardTitle component="h2">Form</CardTitle>
        <CardBody className="stack">
          <Form onSubmit={(e) => e.preventDefault()}>
            <FormFields
              kind={kind}
              fields={fields[kind] ?? []}
              text={text}
              names={names}
              marks={marks}
              edit={edit}
              found={list((drafted ? draft : stored).data?.items)}
            >
              {looks && <Looking provider={provider} of={stored} />}
              {drafted && <LookAtDraft provider={provider} of={draft} />}
            </FormFields>
          </Form>
          <p className="hint">The form writes the text, which has everything else that can be set.</p>
        </CardBody>
      </Card>
      {kind === 'Cluster' && <Pools text={text} edit={edit} names={names} marks={marks} />}
    </div>
  )
}
