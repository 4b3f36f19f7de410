import { Button, Card, CardBody, CardTitle, Content, Spinner } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { useQuery } from '@tanstack/react-query'
import { useRef } from 'react'
import { useAsked } from '../api/asked'
import { client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { useMe } from '../app/me'
import { addressOf, foundWords, type Found, type FoundKind } from '../forms/found'
import { only } from '../forms/tree'
import { Actions } from '../ui/actions'
import { Alert } from '../ui/alert'
import { Td, Th, Tr } from '../ui/cells'
import { Command, quoted } from '../ui/command'
import { More } from '../ui/more'
import { ProblemAlert } from '../ui/problem'
import { size } from '../ui/size'

// useDiscovery asks a provider what it has, if there is one and the person may ask. A hypervisor is not asked again
// just because a page is looked at again, also while it has not answered yet.
export function useDiscovery(provider: string | undefined) {
  const me = useMe()
  const may = me.scope === 'all' && (me.role === 'admin' || me.role === 'operator')
  return useQuery({
    queryKey: ['discovery', provider],
    queryFn: () => must(client.GET('/providers/{name}/discovery', { params: { path: { name: provider ?? '' } } })),
    enabled: may && !!provider,
    staleTime: 5 * 60_000,
    refetchInterval: false,
    refetchOnWindowFocus: false,
    retry: false,
    retryOnMount: false,
  })
}

export type Discovery = Schemas['Discovery']

interface Asked {
  data: Discovery | undefined
  error: unknown
  isLoading: boolean
  isFetching: boolean
  refetch: () => unknown
}

// useDraftDiscovery asks a provider of the text what it has, when a person wants it: it need not be stored. The answer
// holds for as long as the text leads to the same place.
export function useDraftDiscovery(text: string): Asked {
  return useAsked(['discovery of a draft', addressOf(text)], () =>
    must(client.POST('/providers/discover', { body: { document: only(text, 'Provider') } })),
  )
}

interface LookAtDraftProps {
  provider: string
  of: Asked
}

// LookAtDraft asks a provider that is not stored. The focus stays here while the button becomes the answer.
export function LookAtDraft({ provider, of }: LookAtDraftProps) {
  const me = useMe()
  const box = useRef<HTMLDivElement>(null)
  if (me.scope !== 'all' || me.role !== 'admin') return null
  const look = () => {
    box.current?.focus({ preventScroll: true })
    void of.refetch()
  }
  return (
    <div className="stack step" ref={box} tabIndex={-1}>
      {of.data || of.error || of.isFetching ? (
        <Looking provider={provider} of={of} />
      ) : (
        <>
          <Actions>
            <Button variant="secondary" onClick={look}>
              Look at what it has
            </Button>
          </Actions>
          <p className="hint">
            The address and the account are enough to look; nothing is stored. Then you can choose names instead of
            typing them.
          </p>
        </>
      )}
    </div>
  )
}

interface LookingProps {
  provider: string
  of: Asked
}

// Looking says what the choices of a form come from, or why there are none: names can be typed all the same.
export function Looking({ provider, of }: LookingProps) {
  if (of.isLoading) {
    return (
      <p className="hint" role="status">
        <Spinner size="sm" aria-label="Looking" /> Looking at what {provider} has. You can type meanwhile.
      </p>
    )
  }
  if (of.error) return <ProblemAlert of={of.error} retry={() => void of.refetch()} />
  if (!of.data) return null
  return (
    <>
      <p className="hint" role="status">
        The choices are what {provider} has ({of.data.version}).{' '}
        <Button variant="link" isInline isAriaDisabled={of.isFetching} onClick={() => void of.refetch()}>
          Look again
        </Button>
      </p>
      <Unseen of={of.data} />
    </>
  )
}

function Unseen({ of }: { of: Discovery }) {
  return list(of.unseen).map((u) => (
    <Alert key={u.host} isInline variant="warning" title={u.problem}>
      {u.hint}
    </Alert>
  ))
}

// DiscoveryCard shows all that a provider has, by kind.
export function DiscoveryCard({ provider }: { provider: string }) {
  const me = useMe()
  const asked = useDiscovery(provider)
  if (me.scope !== 'all' || (me.role !== 'admin' && me.role !== 'operator')) return null
  const kinds = Object.keys(foundWords) as FoundKind[]
  return (
    <Card component="section">
      <CardTitle component="h2">What it has</CardTitle>
      <CardBody className="stack">
        {asked.isFetching && (
          <p role="status">
            <Spinner size="sm" aria-label="Looking" /> Asking the hypervisor. You can leave this page meanwhile.
          </p>
        )}
        {asked.error && <ProblemAlert of={asked.error} />}
        {asked.data && (
          <>
            <Content component="p">{asked.data.version} answered.</Content>
            <Unseen of={asked.data} />
            {kinds.map((kind) => (
              <OfKind key={kind} kind={kind} of={asked.data} />
            ))}
          </>
        )}
        <Actions>
          <Button variant="secondary" isDisabled={asked.isFetching} onClick={() => void asked.refetch()}>
            Look again
          </Button>
        </Actions>
        <Command>{`directorctl provider discover ${quoted(provider)}`}</Command>
      </CardBody>
    </Card>
  )
}

function OfKind({ kind, of }: { kind: FoundKind; of: Discovery }) {
  const items = list(of.items).filter((i) => i.kind === kind)
  if (items.length === 0) return null
  const left = list(of.left).find((l) => l.kind === kind)
  const placed = items.some((i) => i.in)
  const stored = items.some((i) => i.size_bytes)
  const title = foundWords[kind][1]
  return (
    <section>
      <Content component="h3">
        {title} ({items.length + (left?.count ?? 0)})
      </Content>
      <More of={items} size={25}>
        {(some) => (
          <Table role="table" aria-label={title} variant="compact">
            <Thead>
              <Tr>
                <Th>Name</Th>
                {placed && <Th>In</Th>}
                {kind === 'host' && <Th>CPUs</Th>}
                {kind === 'host' && <Th>Memory free</Th>}
                {kind === 'host' && <Th>VMs</Th>}
                {stored && <Th>Free</Th>}
                <Th>About</Th>
              </Tr>
            </Thead>
            <Tbody>
              {some.map((i) => (
                <Tr key={`${i.in ?? ''} ${i.name}`}>
                  <Td dataLabel="Name" className="break">
                    {i.name}
                  </Td>
                  {placed && (
                    <Td dataLabel="In" className="break">
                      {i.in ?? '–'}
                    </Td>
                  )}
                  {kind === 'host' && <Td dataLabel="CPUs">{i.cpus}</Td>}
                  {kind === 'host' && <Td dataLabel="Memory free">{share(i.memory_free_bytes, i.memory_bytes)}</Td>}
                  {kind === 'host' && <Td dataLabel="VMs">{i.vms ?? 0}</Td>}
                  {stored && <Td dataLabel="Free">{share(i.free_bytes, i.size_bytes)}</Td>}
                  <Td dataLabel="About" className="break">
                    <Words of={i} />
                  </Td>
                </Tr>
              ))}
            </Tbody>
          </Table>
        )}
      </More>
      {left && (
        <p className="hint">
          {left.count} more are not shown: the director tells {items.length} of a kind.
        </p>
      )}
    </section>
  )
}

function Words({ of }: { of: Found }) {
  if (!of.about && !of.problem) return '–'
  return (
    <>
      {of.about}
      {of.problem && <div className="hint">Cannot be used now: {of.problem}.</div>}
    </>
  )
}

const share = (free?: number, all?: number) => (all ? `${size(free ?? 0)} of ${size(all)}` : '–')
