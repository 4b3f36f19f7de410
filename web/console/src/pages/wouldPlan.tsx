import { Card, CardBody, CardTitle, Content, List, ListItem } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { useQuery } from '@tanstack/react-query'
import { client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { yaml } from '../api/yaml'
import { effectsOf } from '../plan/plan'
import { Alert } from '../ui/alert'
import { Td, Th, Tr } from '../ui/cells'
import { ProblemAlert } from '../ui/problem'
import { size } from '../ui/size'
import { duration } from '../ui/time'
import { Effects } from './effects'

// WouldPlan shows the plans that the director would make for the clusters in a text, before the text is stored.
export function WouldPlan({ text }: { text: string }) {
  const asked = useQuery({
    queryKey: ['preview', text],
    queryFn: ({ signal }) => must(client.POST('/preview', { ...yaml(text), signal })),
    retry: false,
    staleTime: 0,
    gcTime: 0,
    refetchInterval: false,
  })
  if (asked.error) return <ProblemAlert of={asked.error} />
  if (!asked.data) {
    return (
      <Content component="p" role="status">
        The director looks which plans it would make…
      </Content>
    )
  }
  return (
    <>
      {asked.data.plans.map((p) => (
        <Would key={p.cluster} of={p} />
      ))}
    </>
  )
}

function Would({ of }: { of: Schemas['PreviewPlan'] }) {
  return (
    <Card component="section">
      <CardTitle component="h2">The plan for {of.cluster}</CardTitle>
      <CardBody className="stack">
        {of.problems.length > 0 && (
          <Alert isInline variant="danger" title="This plan could not be made, or not be started.">
            <List>
              {of.problems.map((p, i) => (
                <ListItem key={i}>
                  <strong>{p.field}</strong> {p.message}
                  {p.hint && ` – ${p.hint}`}
                </ListItem>
              ))}
            </List>
          </Alert>
        )}
        {of.approvals.map((a) => (
          <Alert key={a} isInline variant="warning" title={`To agree to: ${a}`} />
        ))}
        {of.warnings.map((w) => (
          <Alert key={w} isInline variant="warning" title={w} />
        ))}
        {of.operation && (
          <>
            <Content component="p">
              {of.steps === 0
                ? 'Nothing is to be done.'
                : [
                    of.summary ?? of.operation,
                    `It has ${of.steps} steps, and takes about ${duration(of.estimate_seconds)}.`,
                  ].join(' ')}
            </Content>
            {of.steps > 0 && <Effects of={effectsOf(of.effects)} />}
            {of.effects_total > of.effects.length && (
              <Content component="p">and {of.effects_total - of.effects.length} more</Content>
            )}
          </>
        )}
        <HostsAfter of={list(of.hosts_after)} />
      </CardBody>
    </Card>
  )
}

function HostsAfter({ of }: { of: Schemas['HostAfter'][] }) {
  if (of.length === 0) return null
  return (
    <Table role="table" aria-label="What hosts would have left" variant="compact">
      <Thead>
        <Tr>
          <Th>Host</Th>
          <Th>CPUs left</Th>
          <Th>Memory left</Th>
          <Th>Disk left</Th>
        </Tr>
      </Thead>
      <Tbody>
        {of.slice(0, 50).map((h) => (
          <Tr key={h.host}>
            <Td dataLabel="Host">{h.host}</Td>
            <Td dataLabel="CPUs left">{h.cpus_left ?? 'without a bound'}</Td>
            <Td dataLabel="Memory left">{size(h.memory_left_bytes)}</Td>
            <Td dataLabel="Disk left">{size(h.disk_left_bytes)}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}
