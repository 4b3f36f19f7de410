import { api, list } from '../api/client'
import { ChoiceFilter, FilterBar, Pages, TextFilter } from '../ui/filters'
import { Answer, Nothing, Page } from '../ui/page'
import { useFilters, words } from '../ui/url'
import { moving, waiting } from '../plan/plan'
import { PlanTable } from './planTable'

const operations = [
  'cluster.create',
  'cluster.delete',
  'cluster.scale',
  'cluster.upgrade',
  'cluster.rotate_pull_password',
  'cluster.token_keys',
  'cluster.encryption_key',
  'cluster.service_account_key',
  'cluster.ca',
  'cluster.etcd_ca',
  'cluster.front_proxy_ca',
  'cluster.ssh_authority',
  'cluster.consul',
  'cluster.registries',
  'cluster.rotate_certs',
  'cluster.backup',
  'cluster.restore',
  'cluster.drill',
  'node.cordon',
  'node.uncordon',
  'node.drain',
  'node.delete',
  'node.rejoin',
  'node.replace',
  'director.create',
  'director.upgrade',
  'director.delete',
]
const statuses: [string, string][] = [
  [waiting.join(','), 'waits for a person'],
  [moving.join(','), 'runs'],
  ...['planned', 'approved', 'running', 'paused', 'parked', 'failed', 'cancelled', 'done', 'undone', 'discarded'].map(
    (s): [string, string] => [s, s],
  ),
]

export default function Plans() {
  const filters = useFilters()
  const plans = api.useQuery('get', '/plans', {
    params: {
      query: {
        cluster: filters.get('cluster') || undefined,
        status: words(filters.get('status')),
        operation: words(filters.get('operation')),
        continue: filters.get('continue') || undefined,
        sort: '-created_at',
        limit: 50,
      },
    },
  })
  return (
    <Page title="Plans">
      <FilterBar>
        <TextFilter filters={filters} name="cluster" label="Cluster" />
        <ChoiceFilter filters={filters} name="status" label="Status" options={statuses} />
        <ChoiceFilter filters={filters} name="operation" label="Operation" options={operations.map((o) => [o, o])} />
      </FilterBar>
      <Answer of={plans}>
        {(p) => (
          <>
            {list(p.items).length === 0 ? (
              <Nothing title="No plan is like this.">A plan is made on the page of a cluster.</Nothing>
            ) : (
              <PlanTable label="Plans" plans={list(p.items)} />
            )}
            <Pages filters={filters} next={p.continue} />
          </>
        )}
      </Answer>
    </Page>
  )
}
