import { client, json, list } from '../api/client'
import { must } from '../api/must'
import { grounds, type Known } from '../forms/first'

// knownDocuments are the names that a cluster or a network may refer to, 200 of each kind at most.
export async function knownDocuments(): Promise<Known> {
  const names = await Promise.all(
    grounds.map(async (kind) => {
      const answer = await must(
        client.GET('/documents/{kind}', { params: { path: { kind }, query: { limit: 200, fields: ['name'] } } }),
      )
      return [kind, list(json(answer).items).map((d) => d.name)] as const
    }),
  )
  return Object.fromEntries(names) as Known
}
