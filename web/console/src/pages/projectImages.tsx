import { Card, CardBody, CardTitle } from '@patternfly/react-core'
import { api, json } from '../api/client'
import { Command, quoted } from '../ui/command'
import { Answer, Facts } from '../ui/page'
import { size } from '../ui/size'

// ProjectImages says how much of its quota the images of a project use.
export function ProjectImages({ project }: { project: string }) {
  const asked = api.useQuery('get', '/projects/{name}/images', { params: { path: { name: project } } })
  return (
    <Card component="section">
      <CardTitle component="h2">Images</CardTitle>
      <CardBody className="stack">
        <Answer of={asked}>
          {(answer) => {
            const a = json(answer)
            return (
              <Facts
                of={[
                  ['Used', size(a.used_bytes)],
                  ['Quota', a.quota_bytes === 0 ? 'no limit' : size(a.quota_bytes)],
                ]}
              />
            )
          }}
        </Answer>
        <Command>{`directorctl project images ${quoted(project)}`}</Command>
      </CardBody>
    </Card>
  )
}
