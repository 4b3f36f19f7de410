import { Card, CardBody, CardTitle, Content, Gallery, GalleryItem } from '@patternfly/react-core'
import { Link } from 'react-router'
import { api, list } from '../api/client'
import { edits, useMe } from '../app/me'
import { moving, waiting } from '../plan/plan'
import { LinkButton } from '../ui/linkButton'
import { Answer, Nothing, Page } from '../ui/page'
import { Questions } from './hooks'
import { PlanTable } from './planTable'
import { Status } from '../ui/status'

const few = 50
const ill = ['failed', 'unfinished']

// Inbox is what waits for a person, what runs, and what is ill.
export default function Inbox() {
  const me = useMe()
  const ask = (status: string[]) => ({ params: { query: { status, limit: few, sort: '-created_at' } } })
  const waits = api.useQuery('get', '/plans', ask(waiting))
  const runs = api.useQuery('get', '/plans', ask(moving))
  const sick = api.useQuery('get', '/clusters', {
    params: { query: { status: ill, limit: few, fields: ['name', 'status', 'plan'] } },
  })
  const any = api.useQuery('get', '/clusters', { params: { query: { limit: 1, fields: ['name'] } } })
  const none = any.data !== undefined && list(any.data.items).length === 0
  return (
    <Page title="Inbox">
      <div className="stack">
        {none && <First mayAct={edits(me)} />}
        <Card component="section">
          <CardTitle component="h2">Waits for a person</CardTitle>
          <CardBody>
            <Answer of={waits}>
              {(p) =>
                list(p.items).length === 0 ? (
                  <Nothing title="Nothing waits." />
                ) : (
                  <>
                    <PlanTable label="Plans that wait" plans={list(p.items)} />
                    {p.continue && <Link to={`/plans?status=${waiting.join(',')}`}>All that wait</Link>}
                  </>
                )
              }
            </Answer>
            <Questions />
          </CardBody>
        </Card>
        <Card component="section">
          <CardTitle component="h2">Runs now</CardTitle>
          <CardBody>
            <Answer of={runs}>
              {(p) =>
                list(p.items).length === 0 ? (
                  <Nothing title="Nothing runs." />
                ) : (
                  <>
                    <PlanTable label="Plans that run" plans={list(p.items)} />
                    {p.continue && <Link to={`/plans?status=${moving.join(',')}`}>All that run</Link>}
                  </>
                )
              }
            </Answer>
          </CardBody>
        </Card>
        <DrillsToLookAt />
        <Answer of={sick}>
          {(c) =>
            list(c.items).length === 0 ? null : (
              <Card component="section">
                <CardTitle component="h2">Clusters that need help</CardTitle>
                <CardBody>
                  <Gallery hasGutter>
                    {list(c.items).map((one) => (
                      <GalleryItem key={one.name}>
                        <Link to={`/clusters/${one.name}`}>{one.name}</Link> <Status of={one.status} />
                      </GalleryItem>
                    ))}
                  </Gallery>
                  {c.continue && <Link to={`/clusters?status=${ill.join(',')}`}>All of them</Link>}
                </CardBody>
              </Card>
            )
          }
        </Answer>
      </div>
    </Page>
  )
}

// DrillsToLookAt is the restore drills that failed or are late. It shows nothing while all are well.
function DrillsToLookAt() {
  const asked = api.useQuery('get', '/backups', { params: { query: {} } }, { refetchInterval: 60_000 })
  const ill = list(asked.data?.clusters).filter((c) => c.drills?.late || c.drills?.newest?.problem)
  if (ill.length === 0) return null
  return (
    <Card component="section">
      <CardTitle component="h2">Restore drills that failed or are late</CardTitle>
      <CardBody>
        <Gallery hasGutter>
          {ill.map(({ cluster, drills: d }) => (
            <GalleryItem key={cluster}>
              <Link to={d?.newest?.problem ? `/plans/${d.newest.plan}` : '/backups'}>{cluster}</Link>{' '}
              {d?.newest?.problem ? <Status of="failed" word="failed" /> : <Status of="late" word="late" />}
            </GalleryItem>
          ))}
        </Gallery>
      </CardBody>
    </Card>
  )
}

// First leads to the first cluster.
function First({ mayAct }: { mayAct: boolean }) {
  return (
    <Card component="section">
      <CardTitle component="h2">There is no cluster yet</CardTitle>
      <CardBody>
        {mayAct ? (
          <div className="stack">
            <Content component="p">
              A cluster needs a hypervisor, a network, an image, and a few words about itself. You are led through them,
              each is checked while you type, and nothing happens before you start a plan.
            </Content>
            <LinkButton to="/clusters/new">Set up the first cluster</LinkButton>
            <Content component="p">
              The{' '}
              <a href="/docs/" target="_blank">
                manual
              </a>{' '}
              is on this director as well.
            </Content>
          </div>
        ) : (
          <Content component="p">
            No one has made a cluster yet, or none is yours to see. An administrator can grant you one.
          </Content>
        )}
      </CardBody>
    </Card>
  )
}
