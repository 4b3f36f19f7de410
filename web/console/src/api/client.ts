// The client of the director's API. Its types come from docs/reference/openapi.yaml: npm run types.
import createFetchClient from 'openapi-fetch'
import createQueries from 'openapi-react-query'
import { hear } from './clock'
import { sessionEnded } from './ended'
import { KeptAnswers } from './kept'
import type { components, paths } from './schema'

export type Schemas = components['schemas']

// A verb that is sent again by the browser or by a proxy is done once.
const keyed = new Set(['POST'])

export const client = createFetchClient<paths>({
  baseUrl: '/api/v1',
  querySerializer: { array: { style: 'form', explode: false } }, // the director splits lists at commas
})

const kept = new KeptAnswers()
const asked = new WeakMap<Request, number>() // when, by this machine's clock

client.use({
  onRequest({ request }) {
    if (keyed.has(request.method)) request.headers.set('Idempotency-Key', crypto.randomUUID())
    kept.ask(request)
    asked.set(request, Date.now())
    return request
  },
  onResponse({ request, response, schemaPath }) {
    const at = asked.get(request)
    if (at !== undefined) hear(response.headers.get('Date'), at, Date.now())
    // A log-in that fails says so by itself.
    if (response.status === 401 && schemaPath !== '/session') sessionEnded()
    return kept.answer(request, response)
  },
})

export const api = createQueries(client)

// A list of the API may be null where there is nothing.
export function list<T>(items: T[] | null | undefined): T[] {
  return items ?? []
}

// json says that an answer is the JSON that was asked for, and not one of the other forms that the operation has.
export function json<T>(answer: T): Exclude<T, string> {
  return answer as Exclude<T, string>
}
