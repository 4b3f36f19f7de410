import { ToolbarItem } from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import type { ReactNode } from 'react'
import { api, list, type Schemas } from '../api/client'
import { acts, useMe } from '../app/me'
import { Actions } from '../ui/actions'
import { Td, Th, Tr } from '../ui/cells'
import { ChoiceFilter, FilterBar, Pages, TextFilter } from '../ui/filters'
import { Answer, Nothing, Page } from '../ui/page'
import { Status } from '../ui/status'
import { Time, useNow } from '../ui/time'
import { useFilters } from '../ui/url'
import { Authorities } from './authorities'
import { day, endOf } from './certificateEnd'
import { OwnAuthority } from './ownAuthority'
import { Renew, Rotate } from './rotations'

type Certificate = Schemas['SeenCertificate']

// Certificates are all that the director has seen: on nodes, on the wire, in clusters, and its own.
export default function Certificates() {
  const me = useMe()
  const filters = useFilters()
  const cluster = filters.get('cluster')
  return (
    <Page title="Certificates" actions={acts(me) && cluster && <Verbs cluster={cluster} />}>
      <Certified cluster={cluster}>
        <TextFilter filters={filters} name="cluster" label="Cluster" />
      </Certified>
      <Authorities />
      <OwnAuthority />
    </Page>
  )
}

// ClusterCertificates are those of one cluster.
export function ClusterCertificates({ cluster, mayAct }: { cluster: string; mayAct: boolean }) {
  return (
    <Certified cluster={cluster}>
      {mayAct && (
        <ToolbarItem>
          <Verbs cluster={cluster} />
        </ToolbarItem>
      )}
    </Certified>
  )
}

// Certified lists certificates, with the children before its other filters.
function Certified({ cluster, children }: { cluster: string; children: ReactNode }) {
  const filters = useFilters()
  const now = useNow()
  const source = filters.get('source')
  const soon = filters.get('ends')
  const hour = Math.floor(now.getTime() / 3_600_000) * 3_600_000 // the question stays the same while the page is read
  const asked = api.useQuery('get', '/certificates', {
    params: {
      query: {
        cluster: cluster || undefined,
        node: filters.get('node') || undefined,
        name: filters.get('name') || undefined,
        source: source === 'tls' || source === 'file' || source === 'api' || source === 'database' ? source : undefined,
        ends_before: soon ? new Date(hour + Number(soon) * day).toISOString() : undefined,
        continue: filters.get('continue') || undefined,
        limit: 100,
      },
    },
  })
  return (
    <>
      <FilterBar>
        {children}
        <TextFilter filters={filters} name="node" label="Node" />
        <TextFilter filters={filters} name="name" label="Name, such as apiserver" />
        <ChoiceFilter
          filters={filters}
          name="source"
          label="Seen"
          options={[
            ['tls', 'on the wire'],
            ['file', 'on a node'],
            ['api', 'in the cluster'],
            ['database', 'in the director'],
          ]}
        />
        <ChoiceFilter
          filters={filters}
          name="ends"
          label="Ends"
          options={[
            ['0', 'has ended'],
            ['7', 'within 7 days'],
            ['30', 'within 30 days'],
            ['90', 'within 90 days'],
          ]}
        />
      </FilterBar>
      <Answer of={asked}>
        {(c) =>
          list(c.items).length === 0 ? (
            <Nothing title="There is no such certificate." />
          ) : (
            <>
              <CertificateTable of={list(c.items)} now={now} />
              <Pages filters={filters} next={c.continue} />
            </>
          )
        }
      </Answer>
    </>
  )
}

function CertificateTable({ of, now }: { of: Certificate[]; now: Date }) {
  return (
    <Table role="table" aria-label="Certificates" variant="compact">
      <Thead>
        <Tr>
          <Th>Ends</Th>
          <Th>Certificate</Th>
          <Th>Of</Th>
          <Th>Seen</Th>
          <Th>Signed by</Th>
        </Tr>
      </Thead>
      <Tbody>
        {of.map((c) => (
          <Tr key={`${c.cluster}/${c.node}/${c.source}/${c.place}/${c.fingerprint}`}>
            <Td dataLabel="Ends">
              <Status {...endOf(c, now)} /> <Time at={c.ends_at} />
            </Td>
            <Td dataLabel="Certificate" className="break">
              {c.name}
              {c.authority ? ' (authority)' : ''}
              <div className="hint break">{c.subject}</div>
            </Td>
            <Td dataLabel="Of" className="break">
              {c.cluster ?? 'the director'}
              {c.node ? ` / ${c.node}` : ''}
            </Td>
            <Td dataLabel="Seen" className="break">
              {c.place} <Time at={c.seen_at} />
              {c.stale && <div className="hint">It was looked for since then and not found.</div>}
              {c.problem && <div className="hint break">{c.problem}</div>}
            </Td>
            <Td dataLabel="Signed by" className="break">
              {c.issuer}
            </Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}

function Verbs({ cluster }: { cluster: string }) {
  return (
    <Actions>
      <Renew cluster={cluster} />
      <Rotate cluster={cluster} />
    </Actions>
  )
}
