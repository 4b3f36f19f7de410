import { Button, Content, ExpandableSection } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { helpOf, rehearsed, type Rehearsed, type Work } from '../nodes/nodes'
import { Alert } from '../ui/alert'
import { Td, Th, Tr } from '../ui/cells'
import { More } from '../ui/more'
import { Answer } from '../ui/page'

const most = 50
const atOnce = 4

// rehearse asks the cluster what a drain of each node would do. It asks about a few at a time.
async function rehearse(cluster: string, work: Work, signal: AbortSignal): Promise<Rehearsed[]> {
  const nodes = work.nodes.slice(0, most)
  const out: Rehearsed[] = []
  let next = 0
  const some = async () => {
    for (let i = next++; i < nodes.length; i = next++) {
      const node = nodes[i] ?? ''
      const answer = await must(
        client.GET('/clusters/{name}/nodes/{node}/drain', {
          params: {
            path: { name: cluster, node },
            query: { unmanaged: work.unmanaged, delete_emptydir: work.emptydir },
          },
          signal,
        }),
      )
      out[i] = rehearsed(node, list(answer.items))
    }
  }
  await Promise.all(Array.from({ length: atOnce }, some))
  return out
}

const count = (all: Rehearsed[], of: (r: Rehearsed) => unknown[]) => all.reduce((sum, r) => sum + of(r).length, 0)

// Rehearsals ask again when a person wants it, and say when what is shown is of other options.
export function Rehearsals({ cluster, work }: { cluster: string; work: Work }) {
  const now = JSON.stringify([work.nodes, work.emptydir, work.unmanaged])
  const [of, setOf] = useState<{ key: string; work: Work; turn: number }>()
  const [before, setBefore] = useState<number>()
  const asked = useQuery({
    queryKey: ['rehearsal', cluster, of?.key, of?.turn],
    queryFn: ({ signal }) => rehearse(cluster, of?.work ?? work, signal),
    enabled: of !== undefined,
    staleTime: Infinity,
    gcTime: 0,
    retry: 0,
    refetchInterval: false,
  })
  const start = () => {
    setBefore(asked.data && count(asked.data, (r) => r.stay))
    setOf({ key: now, work, turn: (of?.turn ?? 0) + 1 })
  }
  const many = work.nodes.length === 1 ? `the drain of ${work.nodes[0]}` : `the drain of ${work.nodes.length} nodes`
  return (
    <div className="stack">
      <Content component="p">
        A rehearsal asks the cluster which pods would leave, and which would stay and why. It changes nothing.
      </Content>
      {of && of.key !== now && (
        <Alert isInline variant="info" title="Nodes or options have changed since this rehearsal." role="status" />
      )}
      {of && (
        <Answer of={asked}>
          {(all) => (
            <Rehearsal of={all} before={before} current={of.key === now} more={Math.max(0, work.nodes.length - most)} />
          )}
        </Answer>
      )}
      <Button variant="secondary" onClick={start} isLoading={asked.isFetching} isDisabled={asked.isFetching}>
        {of ? 'Rehearse again' : `Rehearse ${many}`}
      </Button>
    </div>
  )
}

interface RehearsalProps {
  of: Rehearsed[]
  before?: number // how many would have stayed in the rehearsal before
  current?: boolean
  more: number // nodes that were not asked about
}

// Rehearsal shows what drains would do: the pods that would stay first, and those that would leave on demand.
export function Rehearsal({ of, before, current = true, more }: RehearsalProps) {
  const [shown, setShown] = useState(false)
  const leave = count(of, (r) => r.leave)
  const stay = count(of, (r) => r.stay)
  const staying = of.flatMap((r) => r.stay.map((e) => ({ node: r.node, ...e })))
  const leaving = of.flatMap((r) => r.leave.map((e) => ({ node: r.node, ...e })))
  return (
    <div className={current ? 'stack' : 'stack old'} role="status">
      <Alert
        isInline
        variant={stay > 0 ? 'warning' : 'success'}
        title={
          leave + stay === 0
            ? 'No pod runs there that a drain would move.'
            : `${leave} ${leave === 1 ? 'pod' : 'pods'} would leave, ${stay} would stay` +
              (before !== undefined && before !== stay ? ` (${before} before).` : '.')
        }
      >
        {stay > 0 && 'A pod that stays holds the drain up until its time is over; the plan then waits for a person.'}
      </Alert>
      {more > 0 && <Content component="p">{more} more nodes were not asked about.</Content>}
      {staying.length > 0 && (
        <More of={staying} size={50}>
          {(some) => (
            <Table role="table" aria-label="Pods that would stay" variant="compact">
              <Thead>
                <Tr>
                  <Th>Pod</Th>
                  <Th>Node</Th>
                  <Th>Why it would stay</Th>
                  <Th>What would help</Th>
                </Tr>
              </Thead>
              <Tbody>
                {some.map((e) => (
                  <Tr key={`${e.node} ${e.namespace}/${e.pod}`}>
                    <PodCells of={e} />
                    <Td dataLabel="Why it would stay">{e.why ?? e.blocked}</Td>
                    <Td dataLabel="What would help">{helpOf(e.blocked) || '–'}</Td>
                  </Tr>
                ))}
              </Tbody>
            </Table>
          )}
        </More>
      )}
      {leaving.length > 0 && (
        <ExpandableSection
          toggleText={`${shown ? 'Hide' : 'Show'} the pods that would leave`}
          isExpanded={shown}
          onToggle={(_, open) => setShown(open)}
        >
          <More of={leaving} size={50}>
            {(some) => (
              <Table role="table" aria-label="Pods that would leave" variant="compact">
                <Thead>
                  <Tr>
                    <Th>Pod</Th>
                    <Th>Node</Th>
                  </Tr>
                </Thead>
                <Tbody>
                  {some.map((e) => (
                    <Tr key={`${e.node} ${e.namespace}/${e.pod}`}>
                      <PodCells of={e} />
                    </Tr>
                  ))}
                </Tbody>
              </Table>
            )}
          </More>
        </ExpandableSection>
      )}
    </div>
  )
}

function PodCells({ of: e }: { of: Schemas['Eviction'] & { node: string } }) {
  return (
    <>
      <Td dataLabel="Pod" className="word">
        {e.namespace}/{e.pod}
        {e.owner && <div className="hint">{e.owner}</div>}
      </Td>
      <Td dataLabel="Node" className="word">
        {e.node}
      </Td>
    </>
  )
}
