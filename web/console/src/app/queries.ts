import { QueryClient } from '@tanstack/react-query'
import { api } from '../api/client'
import { problemOf } from '../api/problem'

export const queries = new QueryClient({
  defaultOptions: {
    queries: {
      // Events say what has changed: keepFresh. Without them, what is older than this is asked for again.
      staleTime: 30_000,
      refetchInterval: (q) => (q.state.status === 'error' ? 5000 : false),
      // A director that starts again answers soon; what it refuses, it refuses again.
      retry: (failures, err) => problemOf(err).status === 0 && failures < 2,
      networkMode: 'always', // an air-gapped browser says that it is offline
    },
    mutations: { networkMode: 'always' },
  },
})

// whoAmI is what everything waits for. Who is not logged in is told so at once, and not asked again.
export const whoAmI = api.queryOptions(
  'get',
  '/me',
  {},
  {
    retry: 0,
    retryOnMount: false,
    staleTime: 60_000,
    refetchInterval: false,
  },
)
