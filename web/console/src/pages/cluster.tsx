import { Card, CardBody, CardTitle, Content } from '@patternfly/react-core'
import { Link, useParams } from 'react-router'
import { api, list, type Schemas } from '../api/client'
import { acts, sees, useMe } from '../app/me'
import { Ask, AskButton } from '../ui/ask'
import { Command } from '../ui/command'
import { FilterBar, Pages } from '../ui/filters'
import { Answer, Facts, Nothing, Page } from '../ui/page'
import { PageTabs } from '../ui/tabs'
import { Status } from '../ui/status'
import { useFilters } from '../ui/url'
import { ClusterBackups } from './backups'
import { ClusterCertificates } from './certificates'
import { ClusterAccess } from './clusterAccess'
import { Health, WaitsFor } from './clusterHealth'
import { DocumentText } from './documentText'
import { ClusterFits } from './fits'
import { Newer } from './newer'
import { NodesTab } from './nodes'
import { PlanTable } from './planTable'
import { usePlan } from './usePlan'
import { Alert } from '../ui/alert'
import { Actions } from '../ui/actions'

type Cluster = Schemas['Cluster']

const tabs = [
  ['overview', 'Overview'],
  ['nodes', 'Nodes'],
  ['plans', 'Plans'],
  ['document', 'Document'],
  ['certificates', 'Certificates'],
  ['backups', 'Backups'],
  ['access', 'Access'],
] as const
// These parts ask for lists of the whole director.
const infrastructure = ['certificates', 'backups']

export default function ClusterPage() {
  const { name = '', tab = 'overview' } = useParams()
  const me = useMe()
  const asked = api.useQuery('get', '/clusters/{name}', { params: { path: { name } } })
  return (
    <Answer of={asked}>
      {(cluster) => {
        const mayAct = acts(me, cluster)
        const seen = sees(me, 'infrastructure') ? tabs : tabs.filter(([key]) => !infrastructure.includes(key))
        return (
          <Page
            title={name}
            above={[{ to: '/clusters', text: 'Clusters' }]}
            beside={<Status of={cluster.status} />}
            actions={mayAct && <Verbs cluster={cluster} />}
          >
            <PageTabs label="Parts of the cluster" base={`/clusters/${name}`} at={tab} of={seen} />
            <div className="stack after">
              {tab === 'overview' && <Overview cluster={cluster} mayAct={mayAct} />}
              {tab === 'nodes' && <NodesTab cluster={name} mayAct={mayAct} />}
              {tab === 'plans' && <ClusterPlans name={name} />}
              {tab === 'document' && <DocumentText kind="Cluster" name={name} />}
              {tab === 'certificates' && <ClusterCertificates cluster={name} mayAct={mayAct} />}
              {tab === 'backups' && <ClusterBackups cluster={name} />}
              {tab === 'access' && <ClusterAccess cluster={name} project={cluster.project} />}
            </div>
          </Page>
        )
      }}
    </Answer>
  )
}

function Verbs({ cluster }: { cluster: Cluster }) {
  return (
    <Actions>
      <PlanButton cluster={cluster.name} />
      {cluster.status !== 'absent' && <DeleteButton cluster={cluster.name} />}
    </Actions>
  )
}

// PlanButton says what a plan would do or be refused for, before there is one.
function PlanButton({ cluster }: { cluster: string }) {
  return <AskButton ask={(close) => <PlanDialog cluster={cluster} close={close} />}>Plan</AskButton>
}

function PlanDialog({ cluster, close }: { cluster: string; close: () => void }) {
  const plan = usePlan(cluster)
  const checked = api.useQuery(
    'post',
    '/clusters/{name}/check',
    { params: { path: { name: cluster } }, body: {} },
    {
      staleTime: 0,
      gcTime: 0,
    },
  )
  return (
    <Ask
      title="Bring the cluster to its document"
      verb="Make the plan"
      close={close}
      ready={checked.data?.ok === true}
      act={() => plan({})}
    >
      <Answer of={checked}>
        {(c) => (
          <>
            {c.ok ? (
              <Content component="p">
                {c.summary ?? 'A plan can be made.'} {c.steps ? `It has ${c.steps} steps.` : ''}
              </Content>
            ) : (
              list(c.problems).map((p, i) => (
                <Alert key={i} isInline variant="danger" title={`${p.field ? `${p.field}: ` : ''}${p.message}`}>
                  {p.hint}
                </Alert>
              ))
            )}
            {list(c.warnings).map((w) => (
              <Alert key={w} isInline variant="warning" title={w} />
            ))}
          </>
        )}
      </Answer>
      <Content component="p" className="hint">
        A plan changes nothing before someone has read and started it.
      </Content>
      <Command>{`directorctl plan ${cluster}`}</Command>
    </Ask>
  )
}

function DeleteButton({ cluster }: { cluster: string }) {
  const plan = usePlan(cluster)
  return (
    <AskButton
      variant="secondary"
      isDanger
      ask={(close) => (
        <Ask
          title={`Plan the end of ${cluster}?`}
          verb="Make the plan"
          danger
          close={close}
          act={() => plan({ operation: 'cluster.delete' })}
        >
          <Content component="p">
            The plan names everything that would be destroyed. Nothing goes before it is started.
          </Content>
          <Command>{`directorctl delete cluster ${cluster}`}</Command>
        </Ask>
      )}
    >
      Delete
    </AskButton>
  )
}

function Overview({ cluster, mayAct }: { cluster: Cluster; mayAct: boolean }) {
  const me = useMe()
  const machines = list(cluster.machines)
  const masters = machines.filter((m) => m.role === 'master').length
  return (
    <div className="stack">
      {cluster.plan && (
        <Alert
          isInline
          variant={cluster.plan_status === 'failed' || cluster.plan_status === 'parked' ? 'warning' : 'info'}
          title={
            <>
              A plan has this cluster: <Status of={cluster.plan_status ?? ''} />
            </>
          }
        >
          <Link to={`/plans/${cluster.plan}`}>Open the plan</Link>
        </Alert>
      )}
      {cluster.status === 'absent' && mayAct && (
        <Alert isInline variant="info" title="The cluster is described, and nothing of it exists.">
          Plan makes the plan that creates it.
        </Alert>
      )}
      <WaitsFor cluster={cluster.name} />
      {cluster.nodes > 0 && <Health cluster={cluster.name} />}
      <Card component="section">
        <CardTitle component="h2">The cluster</CardTitle>
        <CardBody>
          <Facts
            of={[
              ['Kubernetes API', cluster.endpoint && <span className="mono">{cluster.endpoint}</span>],
              [
                'Release',
                cluster.release && <Link to={`/documents/Release/${cluster.release}`}>{cluster.release}</Link>,
              ],
              ['Kubernetes', cluster.version],
              ['Newer version', cluster.newer && <Newer of={cluster} />],
              ['Project', cluster.project],
              ['Machines', `${cluster.nodes}: ${masters} for the control plane, ${machines.length - masters} workers`],
              [
                'Document',
                <Link key="d" to={`/clusters/${cluster.name}/document`}>
                  generation {cluster.generation}
                </Link>,
              ],
            ]}
          />
        </CardBody>
      </Card>
      {sees(me, 'infrastructure') && <ClusterFits cluster={cluster.name} />}
    </div>
  )
}

function ClusterPlans({ name }: { name: string }) {
  const filters = useFilters()
  const plans = api.useQuery('get', '/plans', {
    params: {
      query: { cluster: name, sort: '-created_at', limit: 50, continue: filters.get('continue') || undefined },
    },
  })
  return (
    <Answer of={plans}>
      {(p) => (
        <>
          <FilterBar>
            <Link to={`/plans?cluster=${name}`}>Filter these plans</Link>
          </FilterBar>
          {list(p.items).length === 0 ? (
            <Nothing title="No plan was made for this cluster." />
          ) : (
            <PlanTable label="Plans" plans={list(p.items)} />
          )}
          <Pages filters={filters} next={p.continue} />
        </>
      )}
    </Answer>
  )
}
