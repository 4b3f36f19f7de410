import {
  Button,
  Card,
  CardBody,
  CardTitle,
  Checkbox,
  Content,
  Form,
  FormGroup,
  FormHelperText,
  FormSelect,
  FormSelectOption,
  Grid,
  GridItem,
  HelperText,
  HelperTextItem,
  Radio,
  Spinner,
  TextArea,
  TextInput,
} from '@patternfly/react-core'
import { Table, Tbody, Thead } from '@patternfly/react-table'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { createContext, useContext, useState } from 'react'
import { Link, useNavigate } from 'react-router'
import { api, client, json, list, type Schemas } from '../api/client'
import { must } from '../api/must'
import { acts, useMe } from '../app/me'
import { useAct } from '../ui/act'
import { Actions } from '../ui/actions'
import { Alert } from '../ui/alert'
import { Td, Th, Tr } from '../ui/cells'
import { Command } from '../ui/command'
import { More } from '../ui/more'
import { Nothing, Page } from '../ui/page'
import { ProblemAlert } from '../ui/problem'
import { useFilters } from '../ui/url'
import { useLater } from './applied'
import { campaignOf, commandOf, patchProblem, type Target, type Written } from './campaignForm'

type Foreseen = Schemas['CampaignForeseen']
type Look = Schemas['CampaignLook']
type Problem = Schemas['ProblemField']

// writtenOf is what the address says: a campaign that is being written can be sent to a colleague, and outlives a
// reload.
function writtenOf(filters: ReturnType<typeof useFilters>): Written {
  const get = filters.get
  const target = get('target')
  return {
    name: get('name'),
    clusters: get('clusters'),
    labels: get('labels'),
    status: get('status'),
    running: get('running'),
    target: target === 'patch' || target === 'operation' ? target : 'release',
    release: get('release'),
    image: get('image'),
    patch: get('patch'),
    canary: get('canary'),
    wave: get('wave'),
    pause: get('pause'),
    failures: get('failures'),
    atOnce: get('atonce'),
    window: get('window'),
    zone: get('zone'),
    hours: get('hours'),
  }
}

// NewCampaign chooses clusters and what they get, shows both before anything is made, and makes the campaign.
export default function NewCampaign() {
  const me = useMe()
  const above = [{ to: '/campaigns', text: 'Campaigns' }]
  return (
    <Page title="New campaign" above={above}>
      {acts(me) ? <Writing /> : <Nothing title="Your role makes no campaigns." />}
    </Page>
  )
}

interface Fields {
  of: Written
  problems: Problem[]
  set: (name: keyof Written, value: string) => void
}

const FieldsContext = createContext<Fields | undefined>(undefined)

function useFields(): Fields {
  const fields = useContext(FieldsContext)
  if (!fields) throw new Error('a field is outside of the form')
  return fields
}

function Writing() {
  const filters = useFilters()
  const navigate = useNavigate()
  const queries = useQueryClient()
  const of = writtenOf(filters)
  const asked = JSON.stringify(campaignOf(of))
  const settled = useLater(asked, 500)
  const preview = useQuery({
    queryKey: ['campaign preview', settled],
    queryFn: () =>
      must(client.POST('/campaign-previews', { body: { campaign: JSON.parse(settled) as Schemas['CampaignNew'] } })),
    placeholderData: (before) => before, // what was seen before stays until the answer is there
    refetchInterval: false,
    retry: false,
    gcTime: 0,
  })
  const [busy, setBusy] = useState(false)
  const [failed, setFailed] = useState<unknown>()
  const current = settled === asked && !preview.isFetching && preview.data !== undefined
  const problems = list(preview.data?.problems)
  const ready = current && problems.length === 0
  const create = async () => {
    setBusy(true)
    setFailed(undefined)
    try {
      const made = await must(client.POST('/campaigns', { body: campaignOf(of) }))
      void queries.invalidateQueries({ predicate: (q) => q.queryKey[1] === '/campaigns' })
      void navigate(`/campaigns/${made.id}`)
    } catch (err) {
      setFailed(err)
      setBusy(false)
    }
  }
  const set = (name: keyof Written, value: string) => {
    setFailed(undefined)
    filters.set({ [name.toLowerCase()]: value })
  }
  return (
    <FieldsContext.Provider value={{ of, problems, set }}>
      <div className="split">
        <Form onSubmit={(e) => e.preventDefault()} className="stack">
          <What />
          <Which />
          <How />
        </Form>
        <div className="stack">
          <Matched of={preview.data} settled={settled} failed={preview.error} looking={!current} />
          {failed !== undefined && <ProblemAlert of={failed} />}
          <Content component="p">
            A frozen plan of each cluster is made. Nothing starts before a person has agreed to a wave.
          </Content>
          <Actions>
            <Button isDisabled={!ready || busy} isLoading={busy} onClick={() => void create()}>
              Make the campaign
            </Button>
          </Actions>
          <Command>{commandOf(of)}</Command>
        </div>
      </div>
    </FieldsContext.Provider>
  )
}

interface TextProps {
  name: keyof Written
  label: string
  path: string // of the field in the API's problems
  help?: string
  empty?: string
  long?: boolean
}

// problemsAt are those of a field. One that is empty is said at the end, and not before a person has come to it.
const problemsAt = (f: Fields, name: keyof Written, path: string) =>
  f.of[name] === '' ? [] : f.problems.filter((p) => p.field === path || p.field.startsWith(`${path}[`))

function Text({ name, label, path, help, empty, long }: TextProps) {
  const fields = useFields()
  const wrong = problemsAt(fields, name, path)
  const id = `campaign-${name}`
  const common = {
    id,
    value: fields.of[name],
    placeholder: empty,
    validated: wrong.length > 0 ? ('error' as const) : ('default' as const),
    spellCheck: false,
    'aria-describedby': `${id}-help`,
  }
  return (
    <FormGroup label={label} fieldId={id}>
      {long ? (
        <TextArea {...common} resizeOrientation="vertical" onChange={(_, v) => fields.set(name, v)} />
      ) : (
        <TextInput {...common} autoComplete="off" onChange={(_, v) => fields.set(name, v)} />
      )}
      <FormHelperText id={`${id}-help`}>
        <HelperText>
          {wrong.map((p, i) => (
            <HelperTextItem key={i} variant="error">
              {p.message}
              {p.hint && ` – ${p.hint}`}
            </HelperTextItem>
          ))}
          {wrong.length === 0 && help && <HelperTextItem>{help}</HelperTextItem>}
        </HelperText>
      </FormHelperText>
    </FormGroup>
  )
}

function What() {
  const { of, set } = useFields()
  const radio = (target: Target, label: string) => (
    <Radio
      id={`target-${target}`}
      name="campaign-target"
      label={label}
      isChecked={of.target === target}
      onChange={() => set('target', target)}
    />
  )
  return (
    <Card component="section">
      <CardTitle component="h2">What each cluster gets</CardTitle>
      <CardBody className="stack">
        <Text name="name" label="What it is for" path="name" help="A few words, for those who wonder." />
        <div role="radiogroup" aria-label="Target" className="stack">
          {radio('release', 'An upgrade to a release')}
          {radio('patch', 'A change of its document')}
          {radio('operation', 'Another password for pulling images')}
        </div>
        {of.target === 'release' && (
          <>
            <Named name="release" label="Release" kind="Release" path="target.release" />
            <Named name="image" label="Image" kind="Image" path="target.image" />
          </>
        )}
        {of.target === 'patch' && (
          <Text
            name="patch"
            label="Merge patch of spec, as JSON"
            path="target.patch"
            long
            help={of.patch === '' ? 'Such as {"maintenance": {"window": 2}}' : patchProblem(of.patch)}
          />
        )}
      </CardBody>
    </Card>
  )
}

interface NamedProps {
  name: 'release' | 'image'
  label: string
  kind: 'Release' | 'Image'
  path: string
}

function Named({ name, label, kind, path }: NamedProps) {
  const fields = useFields()
  const asked = api.useQuery('get', '/documents/{kind}', {
    params: { path: { kind }, query: { limit: 200, fields: ['name'] } },
  })
  const names = asked.data ? list(json(asked.data).items).map((d) => d.name) : []
  const shown = fields.of[name]
  const wrong = problemsAt(fields, name, path)
  const id = `campaign-${name}`
  return (
    <FormGroup label={label} fieldId={id}>
      <FormSelect
        id={id}
        value={shown}
        validated={wrong.length > 0 ? 'error' : 'default'}
        aria-describedby={`${id}-help`}
        onChange={(_, v) => fields.set(name, v)}
      >
        <FormSelectOption value="" label={kind === 'Image' ? 'as it is' : 'Choose'} />
        {shown !== '' && !names.includes(shown) && <FormSelectOption value={shown} label={shown} />}
        {names.map((n) => (
          <FormSelectOption key={n} value={n} label={n} />
        ))}
      </FormSelect>
      <FormHelperText id={`${id}-help`}>
        <HelperText>
          {wrong.map((p, i) => (
            <HelperTextItem key={i} variant="error">
              {p.message}
            </HelperTextItem>
          ))}
        </HelperText>
      </FormHelperText>
    </FormGroup>
  )
}

const statuses = ['ready', 'failed', 'changing', 'creating', 'absent', 'deleting']

function Which() {
  const { of, set } = useFields()
  return (
    <Card component="section">
      <CardTitle component="h2">Which clusters</CardTitle>
      <CardBody className="stack">
        <Content component="p">All that you may change, narrowed by every field that is filled in.</Content>
        <Text name="labels" label="Labels" path="selector.labels" help="key=value or key, with commas between." />
        <FormGroup label="Status" fieldId="campaign-status">
          <FormSelect id="campaign-status" value={of.status} onChange={(_, v) => set('status', v)}>
            <FormSelectOption value="" label="any" />
            {statuses.map((s) => (
              <FormSelectOption key={s} value={s} label={s} />
            ))}
          </FormSelect>
        </FormGroup>
        <Text name="running" label="Runs Kubernetes" path="selector.versions" help="v1.36 is each v1.36.x." />
        <Text
          name="clusters"
          label="Names"
          path="selector.clusters"
          long
          help="With commas or spaces between; the clusters are changed in this order."
        />
      </CardBody>
    </Card>
  )
}

function How() {
  const { of, set } = useFields()
  return (
    <Card component="section">
      <CardTitle component="h2">How</CardTitle>
      <CardBody>
        <Grid hasGutter>
          <GridItem md={6}>
            <Text name="canary" label="Clusters of the first wave" path="canary" empty="none of its own" />
          </GridItem>
          <GridItem md={6}>
            <Text name="wave" label="Clusters of the other waves" path="wave" empty="10%" help="10, or 10%" />
          </GridItem>
          <GridItem md={6}>
            <Text
              name="pause"
              label="Pause between waves"
              path="pause"
              empty="until a person agrees"
              help="A time such as 1h"
            />
          </GridItem>
          <GridItem md={6}>
            <Text name="atOnce" label="Plans at the same time" path="at_once" empty="10" />
          </GridItem>
          <GridItem md={6}>
            <Text
              name="failures"
              label="Failures that are let pass"
              path="failures"
              empty="0"
              help="One more stops the campaign. 2, or 5%"
            />
          </GridItem>
          <GridItem md={12}>
            <Checkbox
              id="campaign-windowed"
              label="Start plans only in a window of time"
              isChecked={of.window !== ''}
              onChange={(_, yes) => set('window', yes ? '0 22 * * 1-5' : '')}
            />
          </GridItem>
          {of.window !== '' && (
            <>
              <GridItem md={4}>
                <Text name="window" label="It opens at (cron)" path="window.cron" />
              </GridItem>
              <GridItem md={4}>
                <Text name="hours" label="Hours that it stays open" path="window.for" empty="such as 6" />
              </GridItem>
              <GridItem md={4}>
                <Text name="zone" label="Time zone" path="window.time_zone" empty="UTC" />
              </GridItem>
            </>
          )}
        </Grid>
      </CardBody>
    </Card>
  )
}

interface MatchedProps {
  of: Schemas['CampaignPreview'] | undefined
  settled: string
  failed: unknown
  looking: boolean
}

// Matched is which clusters the campaign would be for, in which wave, and everything that it would be refused for.
function Matched({ of, settled, failed, looking }: MatchedProps) {
  const clusters = list(of?.clusters)
  const waves = list(of?.waves)
  const problems = list(of?.problems)
  return (
    <Card component="section">
      <CardTitle component="h2">
        What it would be {looking && <Spinner size="sm" aria-label="Looking again" />}
      </CardTitle>
      <CardBody className="stack">
        {failed != null && <ProblemAlert of={failed} />}
        <p role="status">
          <strong>
            {clusters.length} {clusters.length === 1 ? 'cluster' : 'clusters'}
          </strong>
          {waves.length > 0 && ` in ${waves.length} ${waves.length === 1 ? 'wave' : 'waves'}: ${sizesText(waves)}`}
        </p>
        {problems.length > 0 && (
          <Alert isInline variant="warning" title="It cannot be made yet." component="h3">
            <ul>
              {problems.map((p, i) => (
                <li key={i}>
                  <strong>{p.field}</strong> {p.message}
                  {p.hint && ` – ${p.hint}`}
                </li>
              ))}
            </ul>
          </Alert>
        )}
        {clusters.length > 0 && <Clusters key={settled} of={clusters} settled={settled} looking={looking} />}
      </CardBody>
    </Card>
  )
}

// sizesText says how large the waves are: "1, then 9 of 10, then 4".
export function sizesText(waves: number[]): string {
  const parts: string[] = []
  for (let i = 0; i < waves.length;) {
    let n = 1
    while (waves[i + n] === waves[i]) n++
    parts.push(n > 1 ? `${n} of ${waves[i]}` : String(waves[i]))
    i += n
  }
  return parts.join(', then ')
}

const page = 20 // the director looks at so many clusters in one request

// What the clusters would get is for what was asked then. While another answer is on its way, it cannot be asked for.
function Clusters({ of, settled, looking }: { of: Foreseen[]; settled: string; looking: boolean }) {
  const [looks, setLooks] = useState<Record<string, Look>>({})
  const { busy, failed, act } = useAct()
  const look = (some: Foreseen[]) =>
    act(async () => {
      const got = await must(
        client.POST('/campaign-previews', {
          body: { campaign: JSON.parse(settled) as Schemas['CampaignNew'], look: some.map((c) => c.name) },
        }),
      )
      const found = list(got.clusters).flatMap((c) => (c.look ? [[c.name, c.look] as const] : []))
      setLooks((before) => ({ ...before, ...Object.fromEntries(found) }))
    })
  return (
    <More of={of} size={page}>
      {(some) => (
        <>
          <Actions>
            <Button
              variant="secondary"
              isLoading={busy}
              isDisabled={busy || looking || some.every((c) => looks[c.name])}
              onClick={() => void look(some)}
            >
              {`See what ${some.length === 1 ? 'this cluster' : `these ${some.length} clusters`} would get`}
            </Button>
          </Actions>
          {failed !== undefined && <ProblemAlert of={failed} />}
          <Table role="table" aria-label="Clusters of the campaign" variant="compact">
            <Thead>
              <Tr>
                <Th width={25}>Cluster</Th>
                <Th>Wave</Th>
                <Th>Runs</Th>
                <Th width={45}>Would get</Th>
              </Tr>
            </Thead>
            <Tbody>
              {some.map((c) => (
                <Tr key={c.name}>
                  <Td dataLabel="Cluster">
                    <Link to={`/clusters/${c.name}`} className="word">
                      {c.name}
                    </Link>
                  </Td>
                  <Td dataLabel="Wave">{c.wave}</Td>
                  <Td dataLabel="Runs">{c.version ?? '–'}</Td>
                  <Td dataLabel="Would get" className="break">
                    {c.busy && <div>It is in another campaign: {c.busy}</div>}
                    <Gets of={looks[c.name]} />
                  </Td>
                </Tr>
              ))}
            </Tbody>
          </Table>
        </>
      )}
    </More>
  )
}

function Gets({ of }: { of: Look | undefined }) {
  if (!of) return '–'
  const problems = list(of.problems)
  if (problems.length === 0) return of.steps === 0 ? 'nothing to do' : (of.summary ?? '')
  return (
    <>
      No plan, and so it would be in no wave:
      <ul>
        {problems.map((p, i) => (
          <li key={i}>
            {p.message}
            {p.hint && <div className="hint">{p.hint}</div>}
          </li>
        ))}
      </ul>
      {list(of.path).length > 0 && <div className="hint">Its path: {list(of.path).join(', ')}</div>}
    </>
  )
}
