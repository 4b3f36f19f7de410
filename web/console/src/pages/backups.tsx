import { ActionsColumn, Table, Tbody, Thead } from '@patternfly/react-table'
import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'react-router'
import { api, client, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { acts, edits, useMe } from '../app/me'
import { Actions } from '../ui/actions'
import { Ask } from '../ui/ask'
import { Td, Th, Tr } from '../ui/cells'
import { atOnce, Command, quoted } from '../ui/command'
import { ChoiceFilter, FilterBar } from '../ui/filters'
import { LinkButton } from '../ui/linkButton'
import { More } from '../ui/more'
import { Answer, Nothing, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { size } from '../ui/size'
import { Status } from '../ui/status'
import { Time } from '../ui/time'
import { useFilters } from '../ui/url'
import { BackUpNow, Extract } from './backupDialogs'
import { usePlan } from './usePlan'

type Backup = Schemas['Backup']

// Backups are the snapshots of etcd, and how old the newest of each cluster is.
export default function Backups() {
  const me = useMe()
  const filters = useFilters()
  const cluster = filters.get('cluster')
  const asked = api.useQuery('get', '/backups', {}, { refetchInterval: 30_000 })
  return (
    <Page
      title="Backups"
      actions={
        <Actions>
          {acts(me) && <BackUpNow of={list(asked.data?.clusters).map((c) => c.cluster)} />}
          {edits(me) && (
            <LinkButton variant="secondary" to="/apply?template=BackupTarget">
              New target
            </LinkButton>
          )}
        </Actions>
      }
    >
      <Answer of={asked}>
        {(b) => (
          <>
            <Ages of={list(b.clusters)} />
            <Drills of={list(b.clusters)} />
            <FilterBar>
              <ChoiceFilter
                filters={filters}
                name="cluster"
                label="Cluster"
                options={[...new Set(list(b.items).map((one) => one.cluster))].sort().map((name) => [name, name])}
              />
            </FilterBar>
            {list(b.items).length === 0 ? (
              <Nothing title="There is no backup.">
                Name targets in spec.backup.targets of a cluster, and make a schedule with the job etcd-backup.
              </Nothing>
            ) : (
              <More of={list(b.items).filter((one) => !cluster || one.cluster === cluster)} size={100}>
                {(some) => <BackupTable of={some} />}
              </More>
            )}
          </>
        )}
      </Answer>
    </Page>
  )
}

// ClusterBackups are those of one cluster.
export function ClusterBackups({ cluster }: { cluster: string }) {
  const me = useMe()
  const asked = api.useQuery('get', '/backups', { params: { query: { cluster } } }, { refetchInterval: 30_000 })
  return (
    <Answer of={asked}>
      {(b) => (
        <div className="stack">
          {acts(me) && list(b.clusters).length > 0 && (
            <Actions>
              <BackUpNow of={[cluster]} />
            </Actions>
          )}
          <Ages of={list(b.clusters)} />
          <Drills of={list(b.clusters)} />
          {list(b.items).length === 0 ? (
            <Nothing title="The cluster has no backup.">
              Name targets in spec.backup.targets of the cluster, and make a schedule with the job etcd-backup.
            </Nothing>
          ) : (
            <More of={list(b.items)} size={100}>
              {(some) => <BackupTable of={some} />}
            </More>
          )}
        </div>
      )}
    </Answer>
  )
}

function Ages({ of }: { of: Schemas['BackupAge'][] }) {
  const late = of.filter((c) => c.late)
  if (of.length === 0) return null
  return (
    <p className="hint">
      {late.length === 0 ? (
        <>The newest backups of all clusters with a target are in time.</>
      ) : (
        <>
          <Status of="late" word="late" />{' '}
          {late.map((c, i) => (
            <span key={c.cluster}>
              {i > 0 && ', '}
              <Link to={`/clusters/${c.cluster}`}>{c.cluster}</Link> (
              {c.newest_at ? <Time at={c.newest_at} /> : 'no backup in every target'})
            </span>
          ))}
        </>
      )}
    </p>
  )
}

// Drills says of each cluster that has drills how the last ones went.
function Drills({ of }: { of: Schemas['BackupAge'][] }) {
  const drilled = of.filter((c) => c.drills)
  if (drilled.length === 0) return null
  return (
    <Table role="table" aria-label="Restore drills" variant="compact">
      <Thead>
        <Tr>
          <Th>Restore drills of</Th>
          <Th>Succeeded last</Th>
          <Th>Newest</Th>
          <Th>Took</Th>
        </Tr>
      </Thead>
      <Tbody>
        {drilled.map(({ cluster, drills: d }) => (
          <Tr key={cluster}>
            <Td dataLabel="Restore drills of">
              <Link to={`/clusters/${cluster}`} className="break">
                {cluster}
              </Link>
            </Td>
            <Td dataLabel="Succeeded last">
              {d?.last_at ? <Time at={d.last_at} /> : 'never'} {d?.late && <Status of="late" word="late" />}
            </Td>
            <Td dataLabel="Newest">
              {d?.newest ? (
                <>
                  <Link to={`/plans/${d.newest.plan}`}>
                    <Status
                      of={d.newest.ok ? 'done' : d.newest.problem ? 'failed' : 'running'}
                      word={d.newest.ok ? 'restored' : d.newest.problem ? 'failed' : 'runs'}
                    />
                  </Link>
                  {d.newest.problem && <div className="hint break">{d.newest.problem}</div>}
                </>
              ) : (
                'none yet'
              )}
            </Td>
            <Td dataLabel="Took">{d?.newest?.ok ? `${Math.round(d.newest.seconds)} s` : ''}</Td>
          </Tr>
        ))}
      </Tbody>
    </Table>
  )
}

interface Asked {
  what: 'delete' | 'extract' | 'restore' | 'new masters' | 'drill'
  backup: Backup
}

function BackupTable({ of }: { of: Backup[] }) {
  const me = useMe()
  const queries = useQueryClient()
  const [failed, setFailed] = useState<unknown>()
  const [asked, setAsked] = useState<Asked>()
  const again = () => queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/backups' })
  const verify = (id: string) => {
    setFailed(undefined)
    must(client.POST('/backups/{backup}/verify', { params: { path: { backup: id } } }))
      .then(again)
      .catch(setFailed)
  }
  return (
    <>
      {failed !== undefined && <ProblemAlert of={failed} />}
      <Table role="table" aria-label="Backups" variant="compact">
        <Thead>
          <Tr>
            <Th>Made</Th>
            <Th>Cluster</Th>
            <Th>Target</Th>
            <Th>Why</Th>
            <Th>Kubernetes</Th>
            <Th>Size</Th>
            <Th>Last read</Th>
            {acts(me) && <Th screenReaderText="Actions" />}
          </Tr>
        </Thead>
        <Tbody>
          {of.map((b) => (
            <Tr key={b.id}>
              <Td dataLabel="Made">
                <Time at={b.made_at} />
                <div className="hint break">{b.id}</div>
              </Td>
              <Td dataLabel="Cluster">
                <Link to={`/clusters/${b.cluster}`} className="break">
                  {b.cluster}
                </Link>
              </Td>
              <Td dataLabel="Target">
                <Link to={`/documents/BackupTarget/${b.target}`} className="break">
                  {b.target}
                </Link>
              </Td>
              <Td dataLabel="Why" className="break">
                {b.reason ?? 'asked for'}
              </Td>
              <Td dataLabel="Kubernetes">{b.kubernetes}</Td>
              <Td dataLabel="Size">{size(b.archive_bytes)}</Td>
              <Td dataLabel="Last read">
                {b.problem ? (
                  <>
                    <Status of="failed" word="damaged" />
                    <div className="hint break">{b.problem}</div>
                  </>
                ) : (
                  <Time at={b.verified_at} />
                )}
              </Td>
              {acts(me) && (
                <Td isActionCell>
                  <ActionsColumn
                    items={[
                      atOnce('Read to its end', `directorctl backup verify ${b.id}`, () => verify(b.id)),
                      { title: 'Restore drill', onClick: () => setAsked({ what: 'drill', backup: b }) },
                      { title: 'Restore', onClick: () => setAsked({ what: 'restore', backup: b }) },
                      { title: 'Restore on new masters', onClick: () => setAsked({ what: 'new masters', backup: b }) },
                      ...(edits(me)
                        ? [
                            { title: 'Take objects out', onClick: () => setAsked({ what: 'extract', backup: b }) },
                            { title: 'Delete', onClick: () => setAsked({ what: 'delete', backup: b }) },
                          ]
                        : []),
                    ]}
                    popperProps={{ position: 'right' }}
                  />
                </Td>
              )}
            </Tr>
          ))}
        </Tbody>
      </Table>
      {asked?.what === 'delete' && <Delete of={asked.backup} close={() => setAsked(undefined)} done={again} />}
      {asked?.what === 'extract' && <Extract of={asked.backup} close={() => setAsked(undefined)} />}
      {asked?.what === 'drill' && <TryRestore of={asked.backup} close={() => setAsked(undefined)} />}
      {asked && (asked.what === 'restore' || asked.what === 'new masters') && (
        <Restore of={asked.backup} newMasters={asked.what === 'new masters'} close={() => setAsked(undefined)} />
      )}
    </>
  )
}

function Delete({ of, close, done }: { of: Backup; close: () => void; done: () => Promise<unknown> }) {
  return (
    <Ask
      title={`Delete backup ${of.id}?`}
      verb="Delete"
      danger
      act={() => must(client.DELETE('/backups/{backup}', { params: { path: { backup: of.id } } })).then(done)}
      close={close}
    >
      <p>It is deleted in the target {of.target}, and cannot be brought back.</p>
      <Command>{`directorctl backup delete ${of.id}`}</Command>
    </Ask>
  )
}

// Restore has the restore planned. The plan says what is lost, and is agreed to there.
function Restore({ of, newMasters, close }: { of: Backup; newMasters: boolean; close: () => void }) {
  const plan = usePlan(of.cluster)
  const restore = { backup: of.id, new_masters: newMasters }
  return (
    <Ask
      title={`Restore cluster ${of.cluster}?`}
      verb="Make the plan"
      act={() => plan({ operation: 'cluster.restore', restore })}
      close={close}
    >
      <p>
        The plan restores the state of <Time at={of.made_at} />. What changed in the cluster since then is lost.
      </p>
      {newMasters && <p>The VMs of all masters are destroyed and created again. Workers and their pods stay.</p>}
      <p>Nothing starts yet: the plan shows each step, and asks for your agreement.</p>
      <Command>{`directorctl backup restore ${of.id}${newMasters ? ' --new-masters' : ''} --plan-only`}</Command>
    </Ask>
  )
}

// TryRestore has a restore drill planned.
function TryRestore({ of, close }: { of: Backup; close: () => void }) {
  const plan = usePlan(of.cluster)
  return (
    <Ask
      title={`Try to restore backup ${of.id}?`}
      verb="Make the plan"
      act={() => plan({ operation: 'cluster.drill', restore: { backup: of.id } })}
      close={close}
    >
      <p>
        The plan restores it into a VM of its own, compares what is there with the manifest of the backup, and deletes
        the VM. The cluster is not touched.
      </p>
      <Command>{`directorctl backup drill ${quoted(of.cluster)} --backup ${of.id} --plan-only`}</Command>
    </Ask>
  )
}
