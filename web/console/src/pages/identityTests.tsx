import { Card, CardBody, CardTitle, Content, FormGroup, TextInput } from '@patternfly/react-core'
import { useState } from 'react'
import { api, client, json, list } from '../api/client'
import { must } from '../api/must'
import { useMe } from '../app/me'
import { Command, flag, quoted } from '../ui/command'
import { Probes } from './probes'

// IdentityTests asks identity providers whether they answer, and what they say of a person.
export function IdentityTests() {
  const me = useMe()
  const mayAct = me.scope === 'all' && me.role === 'admin'
  const [user, setUser] = useState('')
  const asked = api.useQuery(
    'get',
    '/documents/{kind}',
    { params: { path: { kind: 'IdentityProvider' }, query: { limit: 100 } } },
    { enabled: mayAct },
  )
  const names = asked.data ? list(json(asked.data).items).map((d) => d.name) : []
  if (!mayAct || names.length === 0) return null
  return (
    <Card component="section">
      <CardTitle component="h2">Test</CardTitle>
      <CardBody className="stack">
        <Content component="p">
          Each stage is looked at by itself, on every server. With a person, a directory also says which role that
          person has. Nothing is changed.
        </Content>
        <FormGroup label="A person to look up; may be empty" fieldId="identity-user">
          <TextInput id="identity-user" autoComplete="off" value={user} onChange={(_, v) => setUser(v)} />
        </FormGroup>
        {names.map((name) => (
          <section key={name} aria-label={name} className="stack">
            <strong className="break">{name}</strong>
            <Probes
              kind="IdentityProvider"
              name={name}
              ask={() =>
                must(
                  client.POST('/identity-providers/{name}/test', {
                    params: { path: { name }, query: { user: user || undefined } },
                  }),
                )
              }
            />
            <Command>{`directorctl provider test-identity ${quoted(name)}${flag('user', user)}`}</Command>
          </section>
        ))}
      </CardBody>
    </Card>
  )
}
