// What the pages of a plan ask the director for: a plan of 1,000 nodes has thousands of steps, and no page shows all.
import { keepPreviousData, useQuery } from '@tanstack/react-query'
import { api, json, type Schemas } from '../api/client'

const head = { steps: false, machines: false } as const

// planQuery is the query for a plan without its steps.
export const planQuery = (id: string) =>
  api.queryOptions('get', '/plans/{id}', { params: { path: { id }, query: head } })

export const usePlanHead = (id: string) => useQuery(planQuery(id))

interface StepsAsked {
  step?: string[]
  status?: string[]
  q?: string
  started?: boolean
  sort?: 'place' | 'started_at'
  continue?: string
  limit: number
  fields?: string[]
}

// useSteps asks for some steps of a plan. Of a list, those of before stay until the new ones are there.
export function useSteps(id: string, query: StepsAsked, enabled = true) {
  return api.useQuery(
    'get',
    '/plans/{id}/steps',
    { params: { path: { id }, query } },
    {
      enabled,
      placeholderData: query.step ? undefined : keepPreviousData,
      select: (answer) => json(answer) as Schemas['Steps'],
    },
  )
}

// usePlanEffects asks what a plan does to the world: with the first names of each group.
export function usePlanEffects(id: string) {
  return useQuery(effectsQuery(id))
}

export const effectsQuery = (id: string) =>
  api.queryOptions('get', '/plans/{id}/effects', { params: { path: { id } } }, { staleTime: Infinity })
