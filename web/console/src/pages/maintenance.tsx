import {
  Button,
  Card,
  CardBody,
  CardTitle,
  Checkbox,
  Content,
  Form,
  FormGroup,
  FormSelect,
  FormSelectOption,
  Label,
  LabelGroup,
  TextInput,
} from '@patternfly/react-core'
import { useParams } from 'react-router'
import { api, list, type Schemas } from '../api/client'
import { acts, useMe } from '../app/me'
import { commandOf, quorumOf, requestOf, verbOf, verbs, type Node, type Operation, type Work } from '../nodes/nodes'
import { useAct } from '../ui/act'
import { Actions } from '../ui/actions'
import { Alert } from '../ui/alert'
import { Command } from '../ui/command'
import { LinkButton } from '../ui/linkButton'
import { Answer, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { useFilters, words } from '../ui/url'
import { usePlan } from './usePlan'
import { Cordoned } from './nodes'
import { Rehearsals } from './rehearsals'

type Filters = ReturnType<typeof useFilters>

// workOf is what the address says: a maintenance that is being prepared can be sent to a colleague.
function workOf(filters: Filters): Work {
  const yes = (name: string) => filters.get(name) === '1'
  return {
    operation: verbOf(filters.get('operation')).operation,
    nodes: words(filters.get('nodes')) ?? [],
    emptydir: yes('emptydir'),
    unmanaged: yes('unmanaged'),
    minutes: Number(filters.get('minutes')),
    undrained: yes('undrained'),
    keepVM: yes('keepvm'),
  }
}

// Maintenance works on some nodes of a cluster: choose, rehearse, change, rehearse again, read, plan.
export default function Maintenance() {
  const { name = '' } = useParams()
  const me = useMe()
  const filters = useFilters()
  const asked = api.useQuery('get', '/clusters/{name}/nodes', { params: { path: { name } } })
  const cluster = api.useQuery('get', '/clusters/{name}', { params: { path: { name } } })
  return (
    <Page
      title="Maintenance"
      above={[
        { to: '/clusters', text: 'Clusters' },
        { to: `/clusters/${name}`, text: name },
        { to: `/clusters/${name}/nodes`, text: 'Nodes' },
      ]}
    >
      <Answer of={asked}>
        {(nodes) => (
          <Prepare
            cluster={name}
            nodes={list(nodes.items)}
            asked={nodes.unseen === undefined}
            filters={filters}
            mayAct={cluster.data !== undefined && acts(me, cluster.data)}
          />
        )}
      </Answer>
    </Page>
  )
}

interface PrepareProps {
  cluster: string
  nodes: Node[]
  asked: boolean // the cluster itself has answered
  filters: Filters
  mayAct: boolean
}

function Prepare({ cluster, nodes, asked, filters, mayAct }: PrepareProps) {
  const named = workOf(filters)
  const work = { ...named, nodes: named.nodes.filter((n) => nodes.some((one) => one.name === n)) }
  const wrong = !(work.minutes >= 0 && work.minutes <= 1440)
  const drains = verbOf(work.operation).drains
  const quorum = quorumOf(nodes, work.nodes, asked)
  return (
    <div className="stack">
      {work.operation !== 'node.uncordon' && <Cordoned cluster={cluster} nodes={nodes} mayAct={mayAct} />}
      <Card component="section">
        <CardTitle component="h2">Which nodes</CardTitle>
        <CardBody className="stack">
          <Chosen nodes={nodes} asked={asked} chosen={work.nodes} set={(to) => filters.set({ nodes: to.join(',') })} />
        </CardBody>
      </Card>
      <Card component="section">
        <CardTitle component="h2">What is done</CardTitle>
        <CardBody>
          <Options work={work} filters={filters} wrong={wrong} />
        </CardBody>
      </Card>
      {work.nodes.length > 0 && (
        <>
          {quorum && work.operation !== 'node.uncordon' && (
            <Alert isInline variant={quorum.kept ? 'info' : 'warning'} title={quorum.text} />
          )}
          {drains && !(work.undrained && work.operation !== 'node.drain') && (
            <Card component="section">
              <CardTitle component="h2">What the drain would do</CardTitle>
              <CardBody>
                <Rehearsals cluster={cluster} work={work} />
              </CardBody>
            </Card>
          )}
          <Card component="section">
            <CardTitle component="h2">What the director says</CardTitle>
            <CardBody>
              {wrong ? (
                <Content component="p">The minutes are wrong.</Content>
              ) : (
                <Plan cluster={cluster} work={work} mayAct={mayAct} />
              )}
            </CardBody>
          </Card>
        </>
      )}
    </div>
  )
}

interface ChosenProps {
  nodes: Node[]
  asked: boolean
  chosen: string[]
  set: (to: string[]) => void
}

function Chosen({ nodes, asked, chosen, set }: ChosenProps) {
  const others = nodes.filter((n) => !chosen.includes(n.name))
  return (
    <>
      {chosen.length === 0 ? (
        <Content component="p">No node is chosen.</Content>
      ) : (
        <LabelGroup aria-label="Chosen nodes" numLabels={30}>
          {chosen.map((n) => (
            <Label
              key={n}
              color={!asked || nodes.find((one) => one.name === n)?.ready ? 'blue' : 'red'}
              onClose={() => set(chosen.filter((c) => c !== n))}
              closeBtnAriaLabel={`Leave ${n} out`}
            >
              {n}
            </Label>
          ))}
        </LabelGroup>
      )}
      {others.length > 0 && (
        <FormSelect aria-label="Add a node" value="" onChange={(_, v) => v && set([...chosen, v])}>
          <FormSelectOption value="" label="Add a node" />
          {others.slice(0, 200).map((n) => (
            <FormSelectOption key={n.name} value={n.name} label={`${n.name} (${n.role})`} />
          ))}
        </FormSelect>
      )}
    </>
  )
}

function Options({ work, filters, wrong }: { work: Work; filters: Filters; wrong: boolean }) {
  const chosen = verbOf(work.operation)
  const box = (name: string, label: string, on: boolean, description?: string) => (
    <Checkbox
      id={name}
      label={label}
      description={description}
      isChecked={on}
      onChange={(_, v) => filters.set({ [name]: v ? '1' : null })}
    />
  )
  return (
    <Form onSubmit={(e) => e.preventDefault()}>
      <FormGroup label="Operation" fieldId="operation">
        <FormSelect
          id="operation"
          value={work.operation}
          onChange={(_, v) => filters.set({ operation: v as Operation })}
        >
          {verbs.map((v) => (
            <FormSelectOption key={v.operation} value={v.operation} label={v.title} />
          ))}
        </FormSelect>
      </FormGroup>
      <Content component="p">{chosen.text}</Content>
      {chosen.drains && (
        <>
          {work.operation !== 'node.drain' &&
            box('undrained', 'Do not drain', work.undrained, 'What runs there ends at once. For nodes that are gone.')}
          {!(work.undrained && work.operation !== 'node.drain') && (
            <>
              {box('emptydir', 'Allow the loss of local data', work.emptydir, 'Pods with emptyDir volumes leave too.')}
              {box(
                'unmanaged',
                'Allow pods that nothing makes again',
                work.unmanaged,
                'Pods without a controller leave too, and are gone.',
              )}
              <FormGroup label="Minutes that pods may take to leave" fieldId="minutes">
                <TextInput
                  id="minutes"
                  inputMode="numeric"
                  value={filters.get('minutes')}
                  validated={wrong ? 'error' : 'default'}
                  placeholder="as the cluster's document says"
                  onChange={(_, v) => filters.set({ minutes: v })}
                />
              </FormGroup>
            </>
          )}
        </>
      )}
      {work.operation === 'node.delete' && box('keepvm', 'Keep their VMs, outside of the cluster', work.keepVM)}
    </Form>
  )
}

// Plan shows what the director would refuse or plan, and makes the plan.
function Plan({ cluster, work, mayAct }: { cluster: string; work: Work; mayAct: boolean }) {
  const request = requestOf(work)
  const plan = usePlan(cluster)
  const { busy, failed, act } = useAct()
  const checked = api.useQuery(
    'post',
    '/clusters/{name}/check',
    { params: { path: { name: cluster } }, body: request },
    { staleTime: 0, gcTime: 0, refetchInterval: false },
  )
  const make = () =>
    act(async () => {
      await plan(request)
    })
  return (
    <div className="stack">
      <Answer of={checked}>{(c) => <Verdict of={c} />}</Answer>
      {failed !== undefined && <ProblemAlert of={failed} />}
      <Content component="p" className="hint">
        A plan changes nothing before someone has read and started it.
      </Content>
      <Actions>
        {mayAct && (
          <Button isDisabled={busy || checked.data?.ok !== true} isLoading={busy} onClick={() => void make()}>
            Make the plan
          </Button>
        )}
        <LinkButton variant="link" to={`/clusters/${cluster}/nodes`}>
          Back to the nodes
        </LinkButton>
      </Actions>
      <Command>{commandOf(cluster, work)}</Command>
    </div>
  )
}

function Verdict({ of }: { of: Schemas['Checked'] }) {
  return (
    <div className="stack" role="status">
      {of.ok && (
        <Alert isInline variant="success" title={of.summary ?? 'A plan can be made.'}>
          {of.steps ? `It has ${of.steps} steps.` : undefined}
        </Alert>
      )}
      {list(of.problems).map((p, i) => (
        <Alert key={i} isInline variant="danger" title={`${p.field ? `${p.field}: ` : ''}${p.message}`}>
          {p.hint}
        </Alert>
      ))}
      {list(of.warnings).map((w) => (
        <Alert key={w} isInline variant="warning" title={w} />
      ))}
    </div>
  )
}
