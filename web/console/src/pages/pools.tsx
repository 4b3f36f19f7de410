import { Button, Card, CardBody, CardTitle, Form } from '@patternfly/react-core'
import { poolFields } from '../forms/fields'
import { FormFields } from '../forms/formFields'
import type { Kind } from '../forms/kinds'
import type { Mark } from '../forms/places'
import { add, drop, get } from '../forms/tree'
import { Actions } from '../ui/actions'

const workers = ['spec', 'workers']

interface PoolsProps {
  text: string
  edit: (text: string) => void
  names: (kind: Kind) => string[]
  marks: Mark[]
}

// Pools changes the pools of workers of the first cluster in the text.
export function Pools({ text, edit, names, marks }: PoolsProps) {
  const pools = Number(get(text, 'Cluster', workers) ?? 0)
  return (
    <>
      {Array.from({ length: pools }, (_, i) => {
        const name = String(get(text, 'Cluster', [...workers, i, 'name']) ?? '')
        return (
          <Card component="section" key={i} aria-label={`Pool of workers ${name}`}>
            <CardTitle component="h2">Pool of workers {name}</CardTitle>
            <CardBody>
              <Form onSubmit={(e) => e.preventDefault()}>
                <FormFields kind="Cluster" fields={poolFields(i)} text={text} names={names} marks={marks} edit={edit} />
                <Actions>
                  <Button variant="link" isDanger onClick={() => edit(drop(text, 'Cluster', [...workers, i]))}>
                    Leave this pool out
                  </Button>
                </Actions>
              </Form>
            </CardBody>
          </Card>
        )
      })}
      <Button
        variant="secondary"
        onClick={() => edit(add(text, 'Cluster', workers, { name: `pool${pools + 1}`, count: 1 }))}
      >
        Add a pool of workers
      </Button>
    </>
  )
}
