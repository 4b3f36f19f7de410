import { Card, CardBody, CardTitle, Content, Form, FormGroup, Grid, GridItem, TextInput } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { api, list, type Schemas } from '../api/client'
import { Alert } from '../ui/alert'
import { Td, Th, Tr } from '../ui/cells'
import { Command, quoted } from '../ui/command'
import { Answer } from '../ui/page'
import { size } from '../ui/size'
import { useFilters } from '../ui/url'

// Fits answers how many more VMs of a size the hosts would take.
export function Fits() {
  const filters = useFilters()
  const cpus = filters.get('cpus') || '4'
  const memory = filters.get('memory') || '8GiB'
  const disk = filters.get('disk') || '60GiB'
  const asked = api.useQuery(
    'get',
    '/capacity',
    { params: { query: { cpus: Number(cpus) || 0, memory, disk } } },
    { retry: 0, refetchInterval: false },
  )
  const field = (name: string, label: string, value: string) => (
    <GridItem md={4}>
      <FormGroup label={label} fieldId={`fit-${name}`}>
        <TextInput id={`fit-${name}`} value={value} onChange={(_, v) => filters.set({ [name]: v })} />
      </FormGroup>
    </GridItem>
  )
  return (
    <Card component="section">
      <CardTitle component="h2">What would fit</CardTitle>
      <CardBody className="stack">
        <Form onSubmit={(e) => e.preventDefault()}>
          <Grid hasGutter>
            {field('cpus', 'CPUs of a VM', cpus)}
            {field('memory', 'Memory', memory)}
            {field('disk', 'Disk', disk)}
          </Grid>
        </Form>
        <Answer of={asked}>
          {(c) => (
            <Table role="table" aria-label="What would fit" variant="compact">
              <Thead>
                <Tr>
                  <Th>Provider</Th>
                  <Th>More VMs of this size</Th>
                  <Th>What ends it</Th>
                </Tr>
              </Thead>
              <Tbody>
                {list(c.items).flatMap((one) =>
                  list(one.fits).map((f, i) => (
                    <Tr key={`${one.provider} ${i}`}>
                      <Td dataLabel="Provider">{one.provider}</Td>
                      <Td dataLabel="More VMs of this size">{f.count}</Td>
                      <Td dataLabel="What ends it">{f.by}</Td>
                    </Tr>
                  )),
                )}
              </Tbody>
            </Table>
          )}
        </Answer>
        <Command>
          {`directorctl capacity --cpus ${quoted(cpus)} --memory ${quoted(memory)} --disk ${quoted(disk)}`}
        </Command>
      </CardBody>
    </Card>
  )
}

// ClusterFits says how many more workers of each pool a cluster could have.
export function ClusterFits({ cluster }: { cluster: string }) {
  const asked = api.useQuery(
    'get',
    '/capacity',
    { params: { query: { cluster } } },
    { retry: 0, refetchInterval: false },
  )
  const fits: Schemas['Fit'][] = list(asked.data?.items).flatMap((one) => list(one.fits))
  const unseen = list(asked.data?.items).find((one) => one.unseen)
  if (fits.length === 0 && !unseen) return null
  return (
    <Card component="section">
      <CardTitle component="h2">What would fit</CardTitle>
      <CardBody className="stack">
        {unseen && <Alert isInline variant="warning" title={unseen.unseen} />}
        {fits.map((f) => (
          <Content component="p" key={f.pool ?? ''}>
            {f.count} more like those of {f.pool ?? 'this size'} ({f.cpus} CPUs, {size(f.memory_bytes)},{' '}
            {size(f.disk_bytes)}). What ends it: {f.by}.
          </Content>
        ))}
      </CardBody>
    </Card>
  )
}
